//! What cryptsetup formats we open, what we format cryptsetup opens, and both describe it in the same words.

use super::*;

/// Options of a header that cryptsetup makes.
#[derive(Debug, Clone, Copy)]
struct Recipe {
    kdf: &'static str,
    key_bits: u32,
    sector: u32,
    copy_kib: u32,
    slot: u8,
    hash: &'static str,
}

/// The cross product, or each value once with the others varied.
fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for kdf in ["argon2id", "argon2i", "pbkdf2"] {
        for key_bits in [256, 512] {
            for sector in [512, 4096] {
                for copy_kib in [16, 64, 4096] {
                    for (slot, hash) in [(0, "sha256"), (31, "sha512")] {
                        recipes.push(Recipe { kdf, key_bits, sector, copy_kib, slot, hash });
                    }
                }
            }
        }
    }
    // 72 are all; 7 has no divisor in common with the lengths of the lists.
    if long() { recipes } else { recipes.into_iter().step_by(7).collect() }
}

impl Recipe {
    fn format(&self, bench: &Bench) {
        bench.write(&[]);
        let mut options = cheap(self.kdf);
        let more = [
            "--type=luks2".to_string(),
            "--key-file=@/key".to_string(),
            std::format!("--key-size={}", self.key_bits),
            std::format!("--sector-size={}", self.sector),
            std::format!("--luks2-metadata-size={}k", self.copy_kib),
            std::format!("--key-slot={}", self.slot),
            std::format!("--hash={}", self.hash),
            "--label=a label".to_string(),
        ];
        options.extend(more.iter().map(String::as_str));
        bench.ok("luksFormat", &options);
    }
}

#[test]
fn what_cryptsetup_formats_is_opened() {
    let bench = Bench::new();
    for recipe in recipes() {
        recipe.format(&bench);
        let device = bench.bytes();
        let found = read(&mut device.as_slice()).unwrap_or_else(|e| panic!("{recipe:?}: {e}"));
        assert_eq!(found.stale, None, "{recipe:?}");
        let unlocked = opened(&device, PASSPHRASE).unwrap_or_else(|e| panic!("{recipe:?}: {e}"));
        assert_eq!(unlocked.slot, Id(recipe.slot), "{recipe:?}");
        assert_eq!(unlocked.mapping.sector_size, recipe.sector, "{recipe:?}");
        assert_eq!(*unlocked.key, bench.volume_key(), "{recipe:?}");
        let refused = opened(&device, b"wrong").unwrap_err();
        let why = Refusal { slot: Id(recipe.slot), why: SlotError::Passphrase };
        assert_eq!(refused, UnlockError::Refused(vec![why]), "{recipe:?}");
        assert_eq!(found.header.to_string().trim_end(), bench.ok("luksDump", &[]).trim_end(), "{recipe:?}");
    }
}

#[test]
fn cryptsetup_opens_what_is_formatted_here() {
    let bench = Bench::new();
    let argon2 = Argon2Cost { memory_kib: 64, passes: 4, lanes: 2 };
    let costs = [Cost::Argon2id(argon2), Cost::Argon2i(argon2), Cost::Pbkdf2(1000)];
    for (number, cost) in costs.into_iter().enumerate() {
        for key_bytes in [32, 64] {
            for sector_size in [512, 4096] {
                let key = key(key_bytes);
                let mut format = Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", sector_size);
                format.label = "STATE".into();
                format.copy_bytes = [16 << 10, 64 << 10, 1 << 20][number];
                format.flags = vec!["allow-discards".into()];
                let token = Token::new("sideroKMS", serde_json::Map::new());
                let slots = [
                    NewSlot { cost, ..slot(PASSPHRASE) },
                    NewSlot { slot: Some(Id(31)), token: Some(&token), ..slot(OTHER) },
                ];
                let change = format.make(&key, &slots, &mut random()).unwrap();
                let mut device = new_device();
                apply(&mut device, &change.steps);
                bench.write(&device);
                let what = std::format!("{cost:?} {key_bytes} {sector_size}");
                assert!(bench.opens("key") && bench.opens("other"), "{what}");
                assert_eq!(bench.volume_key(), key, "{what}");
                let found = read(&mut device.as_slice()).unwrap();
                assert_eq!(found.header, change.header, "{what}");
                assert_eq!(
                    found.header.to_string().trim_end(),
                    bench.ok("luksDump", &[]).trim_end(),
                    "{what}"
                );
            }
        }
    }
}

/// cryptsetup cannot format such a volume where the kernel has no Adiantum, and needs none for its header.
#[test]
fn cryptsetup_opens_and_changes_a_header_of_adiantum() {
    let bench = Bench::new();
    let key = key(32);
    for cipher in [Cipher::Adiantum12, Cipher::Adiantum20] {
        let format = Format { cipher, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 4096) };
        let change = format.make(&key, &[slot(PASSPHRASE)], &mut random()).unwrap();
        let mut device = new_device();
        apply(&mut device, &change.steps);
        bench.write(&device);
        assert!(bench.opens("key") && !bench.opens("other"), "{cipher:?}");
        assert_eq!(bench.volume_key(), key, "{cipher:?}");
        let dump = bench.ok("luksDump", &[]);
        assert!(dump.contains(&std::format!("cipher: {}", cipher.name())), "{dump}");
        assert_eq!(change.header.to_string().trim_end(), dump.trim_end(), "{cipher:?}");
        // The area of the slot that it adds is encrypted as ours are.
        let mut options = cheap("pbkdf2");
        options.extend(["--key-file=@/key", "--new-keyfile=@/other"]);
        options.extend(["--keyslot-cipher=aes-xts-plain64", "--keyslot-key-size=512"]);
        bench.ok("luksAddKey", &options);
        let unlocked = opened(&bench.bytes(), OTHER).unwrap();
        assert_eq!((unlocked.slot, unlocked.key.as_slice()), (Id(1), key.as_slice()));
        assert_eq!(unlocked.mapping.cipher, cipher.name());
        let areas = read(&mut bench.bytes().as_slice()).unwrap().header.metadata.keyslots;
        let shape = |id| areas[&id].area.as_ref().map(|area| (area.encryption.clone(), area.key_size));
        assert_eq!(shape(Id(0)), shape(Id(1)));
    }
    let format =
        Format { cipher: Cipher::Adiantum12, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 512) };
    let wrong = format.make(&self::key(64), &[slot(PASSPHRASE)], &mut random());
    assert_eq!(wrong.unwrap_err(), ChangeError::Key);
}

/// What cryptsetup makes where the kernel has Adiantum: the area is encrypted as the data is.
#[test]
fn an_area_with_adiantum_is_opened() {
    for cipher in [Cipher::Adiantum12, Cipher::Adiantum20] {
        let key = key(32);
        let format = Format { cipher, ..Format::new("0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7", 4096) };
        let change = format.make(&key, &[slot(PASSPHRASE)], &mut random()).unwrap();
        let mut device = new_device();
        apply(&mut device, &change.steps);
        let mut header = change.header;
        let found = header.metadata.keyslots.get_mut(&Id(0)).unwrap();
        let (area, kdf) = (found.area.as_mut().unwrap(), found.kdf.as_ref().unwrap());
        let derived = |bytes| kdf::derive(kdf, PASSPHRASE, bytes, &Alone).unwrap();
        let start = usize::try_from(area.offset).unwrap();
        let pieces = &mut device[start..start + 32 * 4000];
        let usual = derived(64);
        cipher::sectors(Cipher::AesXts, &usual, pieces, cipher::Direction::Decrypt).unwrap();
        cipher::sectors(cipher, &derived(32), pieces, cipher::Direction::Encrypt).unwrap();
        (area.encryption, area.key_size) = (Some(cipher.name().into()), Some(32));
        for copy in [Copy::First, Copy::Second] {
            apply(&mut device, &[header.repair(copy).unwrap()]);
        }
        assert_eq!(opened(&device, PASSPHRASE).unwrap().key.as_slice(), key.as_slice());
        assert!(opened(&device, OTHER).is_err());
    }
}

#[test]
fn both_change_the_same_header_in_turn() {
    let bench = Bench::new();
    let (header, mut device) = volume(&key(64));
    // Ours, then theirs.
    let change = header.add(&key(64), &slot(OTHER), &mut random()).unwrap();
    apply(&mut device, &change.steps);
    bench.write(&device);
    let mut options = cheap("argon2id");
    fs::write(bench.path("third"), b"third").unwrap();
    let third = bench.named("third");
    options.extend(["--key-file=@/key", &third]);
    bench.ok("luksAddKey", &options);
    bench.ok("token add", &["--key-description=billet", "--token-id=3", "--key-slot=2"]);
    let device = bench.bytes();
    assert_eq!(opened(&device, b"third").unwrap().slot, Id(2));
    assert_eq!(opened(&device, OTHER).unwrap().slot, Id(1));
    // Ours again, on what they wrote.
    let header = read(&mut device.as_slice()).unwrap().header;
    assert_eq!(header.metadata.tokens[&Id(3)].keyslots, [Id(2)]);
    let mut device = device;
    apply(&mut device, &header.remove(Id(0)).unwrap().steps);
    bench.write(&device);
    assert!(!bench.opens("key") && bench.opens("other") && bench.opens("third"));
}

#[test]
fn a_slot_of_another_key_does_not_count() {
    let bench = Bench::new();
    let mut options = cheap("pbkdf2");
    options.extend(["--type=luks2", "--key-file=@/key", "--key-slot=1"]);
    bench.ok("luksFormat", &options);
    // A key of 19 bytes in the first slot: nothing that the data could be encrypted with.
    let other = bench.named("other");
    let mut options = cheap("pbkdf2");
    options.extend(["--unbound", "--key-size=152", "--key-slot=0", &other]);
    bench.ok("luksAddKey", &options);
    let device = bench.bytes();
    assert_eq!(opened(&device, PASSPHRASE).unwrap().slot, Id(1));
    let refusals = opened(&device, OTHER).unwrap_err();
    assert_eq!(refusals, UnlockError::Refused(vec![Refusal { slot: Id(1), why: SlotError::Passphrase }]));
}
