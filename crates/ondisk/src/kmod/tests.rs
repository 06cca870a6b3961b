//! Orders and matches, against hand-made indexes and against what depmod and fnmatch say.

use alloc::vec;

use proptest::prelude::*;

use super::*;

const DEP: &str = "\
kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko kernel/lib/crc16.ko kernel/crypto/crc32c_generic.ko
kernel/fs/jbd2/jbd2.ko: kernel/crypto/crc32c_generic.ko
kernel/fs/mbcache.ko:
kernel/lib/crc16.ko:
kernel/crypto/crc32c_generic.ko:
kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko
kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko
kernel/net/core/failover.ko:
kernel/drivers/md/dm-verity.ko: kernel/drivers/md/dm-bufio.ko kernel/drivers/md/dm-mod.ko
kernel/drivers/md/dm-bufio.ko: kernel/drivers/md/dm-mod.ko
kernel/drivers/md/dm-mod.ko:
kernel/loop/a.ko: kernel/loop/b.ko
kernel/loop/b.ko: kernel/loop/a.ko
";

const ALIAS: &str = "\
# Aliases extracted from modules themselves.
alias virtio:d00000001v* virtio_net
alias fs-ext4 ext4
alias ext3 ext4
alias pci:v00001AF4d*sv*sd*bc0[13]sc*i* a
alias devname:mapper/control dm_mod
alias of:N*T*Cfoo,bar-baz b
alias *any* b
";

const SOFTDEP: &str = "\
# Soft dependencies extracted from modules themselves.
softdep dm_mod pre: crc16 no-such-module post: mbcache
softdep ext4 pre: crc32c-generic
";

fn index() -> Index<'static> {
    Index { dep: DEP, alias: ALIAS, softdep: SOFTDEP, builtin: "kernel/drivers/virtio/virtio_pci.ko\n" }
}

fn names(request: &str) -> Vec<&'static str> {
    index().load_order(request).unwrap().into_iter().map(Module::name).collect()
}

#[test]
fn dependencies_come_first_and_once() {
    assert_eq!(names("virtio-net"), ["failover", "net_failover", "virtio_net"]);
    assert_eq!(names("ext4"), ["crc32c_generic", "crc16", "mbcache", "jbd2", "ext4"]);
}

#[test]
fn soft_dependencies_surround_the_module_and_may_be_missing() {
    assert_eq!(names("dm_verity"), ["crc16", "dm-mod", "mbcache", "dm-bufio", "dm-verity"]);
}

#[test]
fn a_cycle_ends() {
    assert_eq!(names("a"), ["b", "a"]);
    assert_eq!(names("b"), ["a", "b"]);
}

#[test]
fn a_chain_deeper_than_any_stack_is_no_danger() {
    let dep: String = (0..3000).map(|i| std::format!("m{i}.ko: m{}.ko\n", i + 1)).collect();
    let index = Index { dep: &dep, ..Index::default() };
    let order = index.load_order("m0").unwrap();
    assert_eq!((order.len(), order[0].name()), (3001, "m3000"));
}

#[test]
fn names_aliases_and_builtins() {
    assert_eq!(names("fs-ext4").last(), Some(&"ext4"));
    assert_eq!(names("virtio_pci"), vec![""; 0]);
    assert_eq!(index().load_order("nothing"), Err(NotFound("nothing".into())));
    let path = index().find("virtio_net").unwrap().path;
    assert_eq!(path, "kernel/drivers/net/virtio_net.ko.xz");
}

#[test]
fn table_and_index_find_the_same() {
    let table = AliasTable::new(ALIAS);
    for alias in [
        "virtio:d00000001v00001AF4",
        "virtio:d00000002v00001AF4",
        "pci:v00001AF4d00001000sv00001AF4sd00000001bc01sc00i00",
        "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00",
        "of:Nx_yT<NULL>Cfoo,bar_baz",
        "devname:mapper/control",
        "many",
        "usb:many",
    ] {
        let mut direct: Vec<_> = index().aliases(alias).collect();
        let mut table: Vec<_> = table.matches(alias).collect();
        direct.sort_unstable();
        table.sort_unstable();
        assert_eq!(direct, table, "{alias}");
    }
    let pci = "pci:v00001AF4d00001000sv00001AF4sd00000001bc03sc00i00";
    assert_eq!(table.matches(pci).collect::<Vec<_>>(), ["a"]);
}

/// Fifty modules of a real kernel: what modprobe would load for names and aliases.
#[test]
fn modprobe_loads_the_same_in_the_same_order() {
    let index = Index {
        dep: include_str!("../../testdata/kmod/modules.dep"),
        alias: include_str!("../../testdata/kmod/modules.alias"),
        softdep: include_str!("../../testdata/kmod/modules.softdep"),
        builtin: include_str!("../../testdata/kmod/modules.builtin"),
    };
    let expected = include_str!("../../testdata/kmod/expected");
    let mut compared = 0;
    for block in expected.split("= ").skip(1) {
        let (request, paths) = block.split_once('\n').unwrap();
        let ours: Vec<_> =
            index.load_order(request).unwrap_or_default().into_iter().map(|m| m.path).collect();
        assert_eq!(ours, paths.lines().collect::<Vec<_>>(), "{request}");
        compared += ours.len();
    }
    assert!(compared > 70, "{compared}");
}

#[test]
fn glob_semantics() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("a*b*c", "a__b_bc", true),
        ("a*b*c", "a__b_b", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[^a-c]x", "dx", true),
        ("[]x]", "]", true),
        ("[!]x]", "]", false),
        ("[a", "[a", true),
        ("\\*", "*", true),
        ("\\*", "x", false),
        ("\\", "\\", false),
        ("a-b", "a_b", true),
        ("a_b", "a-b", true),
        ("[0-9A-F]*", "_", false),
        ("[a-]", "-", true),
        ("*****a", "bbbbb", false),
    ] {
        assert_eq!(alias_matches(pattern, text), expected, "{pattern} on {text}");
    }
}

#[test]
fn a_hostile_pattern_takes_no_exponential_time() {
    let pattern = "a*".repeat(200) + "b";
    assert!(!alias_matches(&pattern, &"a".repeat(2000)));
}

proptest! {
    #[test]
    fn nothing_panics(text in "[a-c:.* /\\[\\]\\\\\n#-]{0,200}", request in "[a-c*\\[\\]-]{0,12}") {
        let index = Index { dep: &text, alias: &text, softdep: &text, builtin: &text };
        let _ = index.load_order(&request);
        let _ = alias_matches(&text, &request);
        let prefixed: String = text.lines().map(|l| std::format!("alias {l}\nsoftdep {l}\n")).collect();
        let index = Index { alias: &prefixed, softdep: &prefixed, ..index };
        let _ = index.load_order(&request);
        let _ = AliasTable::new(&prefixed).matches(&request).count();
    }

    #[test]
    fn a_pattern_of_stars_and_letters_matches_what_it_was_made_from(parts in proptest::collection::vec("[a-d]{0,4}", 1..6), fill in "[a-d]{0,5}") {
        let pattern = parts.join("*");
        let text = parts.join(&fill);
        prop_assert!(alias_matches(&pattern, &text));
    }
}
