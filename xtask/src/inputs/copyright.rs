//! Licences out of a Debian copyright file, as an SPDX expression.
//!
//! Owns: the machine-readable format's `License:` fields and, for files in free form, the licences that they say
//! lie in /usr/share/common-licenses.
//! Does not: judge. A name that SPDX lacks becomes a `LicenseRef-` of the same name.
//! Source: Debian's machine-readable copyright format 1.0 §7; SPDX 2.3 annex D (expressions).

use std::collections::BTreeSet;

/// Debian's short names that differ from SPDX's.
const NAMES: [(&str, &str); 34] = [
    ("agpl-3", "AGPL-3.0-only"),
    ("apache", "Apache-2.0"),
    ("apache-2", "Apache-2.0"),
    ("apache-2.0", "Apache-2.0"),
    ("artistic", "Artistic-1.0"),
    ("bsd", "BSD-3-Clause"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd-4-clause", "BSD-4-Clause"),
    ("cc-by-4.0", "CC-BY-4.0"),
    ("cc-by-sa-4.0", "CC-BY-SA-4.0"),
    ("cc0", "CC0-1.0"),
    ("cc0-1.0", "CC0-1.0"),
    ("expat", "MIT"),
    ("gfdl-1.3", "GFDL-1.3-only"),
    ("gpl-1", "GPL-1.0-only"),
    ("gpl-1+", "GPL-1.0-or-later"),
    ("gpl-2", "GPL-2.0-only"),
    ("gpl-2.0", "GPL-2.0-only"),
    ("gpl-2.0+", "GPL-2.0-or-later"),
    ("gpl-2+", "GPL-2.0-or-later"),
    ("gpl-3", "GPL-3.0-only"),
    ("gpl-3+", "GPL-3.0-or-later"),
    ("isc", "ISC"),
    ("lgpl-2", "LGPL-2.0-only"),
    ("lgpl-2+", "LGPL-2.0-or-later"),
    ("lgpl-2.1", "LGPL-2.1-only"),
    ("lgpl-2.1+", "LGPL-2.1-or-later"),
    ("lgpl-3", "LGPL-3.0-only"),
    ("lgpl-3+", "LGPL-3.0-or-later"),
    ("mit", "MIT"),
    ("mpl-2", "MPL-2.0"),
    ("mpl-2.0", "MPL-2.0"),
    ("zlib", "Zlib"),
];

/// All licences that the file names, joined with AND; `None` when it names none.
pub(crate) fn licences(copyright: &str) -> Option<String> {
    let mut found: BTreeSet<String> = copyright.lines().filter_map(field).map(expression).collect();
    if found.is_empty() {
        found = copyright.split("common-licenses/").skip(1).map(|rest| identifier(file_name(rest))).collect();
    }
    found.remove("");
    (!found.is_empty()).then(|| found.into_iter().collect::<Vec<_>>().join(" AND "))
}

fn field(line: &str) -> Option<&str> {
    line.strip_prefix("License:").map(str::trim)
}

/// `GPL-2+ or MIT` and the like. Words between operators are one name.
fn expression(text: &str) -> String {
    let mut terms = vec![String::new()];
    let mut joints = Vec::new();
    for word in text.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        match (word, terms.last_mut()) {
            ("or", _) => {
                joints.push(" OR ");
                terms.push(String::new());
            }
            ("and" | "and/or", _) => {
                joints.push(" AND ");
                terms.push(String::new());
            }
            (_, Some(name)) if name.is_empty() => word.clone_into(name),
            (_, Some(name)) => *name = format!("{name} {word}"),
            (_, None) => {}
        }
    }
    let mut result = String::new();
    for (number, name) in terms.iter().enumerate() {
        let term = identifier(name.split(" with ").next().unwrap_or(name));
        if !result.is_empty() && !term.is_empty() {
            result.push_str(joints.get(number.wrapping_sub(1)).unwrap_or(&" AND "));
        }
        result.push_str(&term);
    }
    if result.contains(" OR ") { format!("({result})") } else { result }
}

fn identifier(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if let Some((_, spdx)) = NAMES.iter().find(|(debian, _)| *debian == lower) {
        return (*spdx).to_owned();
    }
    let text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' }).collect();
    let text = text.trim_matches(['-', '.']);
    if text.is_empty() { String::new() } else { format!("LicenseRef-{text}") }
}

fn file_name(rest: &str) -> &str {
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-+".contains(c))).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_readable_files() {
        let text = "Format: x\n\nFiles: *\nLicense: Apache-2.0\n\nFiles: a\nLicense: GPL-2+ or Expat\n\n\
            Files: b\nLicense: odd licence/1\n\nLicense: Apache-2.0\n text\n";
        let wanted = "(GPL-2.0-or-later OR MIT) AND Apache-2.0 AND LicenseRef-odd-licence-1";
        assert_eq!(licences(text).as_deref(), Some(wanted));
    }

    #[test]
    fn free_form_files_name_common_licenses() {
        let text =
            "the GPL is in /usr/share/common-licenses/GPL-2.\nand `/usr/share/common-licenses/LGPL-2.1'";
        assert_eq!(licences(text).as_deref(), Some("GPL-2.0-only AND LGPL-2.1-only"));
    }

    #[test]
    fn an_exception_does_not_hide_the_licence() {
        assert_eq!(expression("GPL-3+ with Autoconf exception"), "GPL-3.0-or-later");
        assert_eq!(licences("no licence at all"), None);
    }
}
