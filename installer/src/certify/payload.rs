//! A small EFI program in the place of kernel and initramfs: it says which entry the loader chose, and powers off.
//!
//! Owns: the bytes of that program. With it every state that the certificate judges is one that real firmware and the
//! real loader can start.
//! Source: UEFI specification 2.10 (§4.3 system table, §8.2 GetVariable, §8.5 ResetSystem, §12.4 OutputString); the boot
//! loader interface for `LoaderEntrySelected`; Microsoft's PE format specification.

use ondisk::pe::{Image, NewSection};

/// What the program prints before the entry's identifier.
pub const SAYS: &str = "billet payload ";

/// The text that a boot menu reads, as the image builder writes it: one identifier, no version.
const OS_RELEASE: &str = "NAME=\"Billet\"\nID=billet\nPRETTY_NAME=\"Billet\"\n";

/// Both alignments in memory: a page.
const PAGE: usize = 0x1000;
/// Alignment in the file.
const FILE_ALIGNMENT: usize = 0x200;
/// Where code and data lie, in memory.
const CODE: usize = PAGE;
const DATA: usize = 2 * PAGE;

/// Offsets in the data.
mod data {
    pub(super) const NAME: usize = 0;
    pub(super) const GUID: usize = 0x40;
    pub(super) const SIZE: usize = 0x50;
    pub(super) const LINE_END: usize = 0x60;
    pub(super) const SAYS: usize = 0x80;
    pub(super) const FOUND: usize = 0x180;
    /// Room for the variable.
    pub(super) const FOUND_BYTES: u64 = 0x200;
}

/// `4a67b082-0a4c-41cf-b6c7-440b29bb8c4f`, the boot loader interface's, as stored.
const LOADER_GUID: [u8; 16] =
    [0x82, 0xb0, 0x67, 0x4a, 0x4c, 0x0a, 0xcf, 0x41, 0xb6, 0xc7, 0x44, 0x0b, 0x29, 0xbb, 0x8c, 0x4f];

/// The machine code: rcx is the image, rdx the system table; the calling convention keeps rbx.
#[rustfmt::skip]
const PROGRAM: [u8; 0x73] = [
    0x53,                                     // push rbx
    0x48, 0x83, 0xec, 0x30,                   // sub rsp, 0x30      room for five arguments, aligned
    0x48, 0x89, 0xd3,                         // mov rbx, rdx
    // RuntimeServices->GetVariable(NAME, GUID, NULL, &SIZE, FOUND)
    0x48, 0x8d, 0x0d, 0xf1, 0x0f, 0x00, 0x00, // lea rcx, [NAME]
    0x48, 0x8d, 0x15, 0x2a, 0x10, 0x00, 0x00, // lea rdx, [GUID]
    0x45, 0x31, 0xc0,                         // xor r8d, r8d
    0x4c, 0x8d, 0x0d, 0x30, 0x10, 0x00, 0x00, // lea r9, [SIZE]
    0x48, 0x8d, 0x05, 0x59, 0x11, 0x00, 0x00, // lea rax, [FOUND]
    0x48, 0x89, 0x44, 0x24, 0x20,             // mov [rsp+0x20], rax
    0x48, 0x8b, 0x43, 0x58,                   // mov rax, [rbx+0x58]
    0xff, 0x50, 0x48,                         // call [rax+0x48]
    // ConOut->OutputString(ConOut, SAYS), FOUND, LINE_END
    0x48, 0x8d, 0x15, 0x46, 0x10, 0x00, 0x00, // lea rdx, [SAYS]
    0x48, 0x8b, 0x4b, 0x40,                   // mov rcx, [rbx+0x40]
    0xff, 0x51, 0x08,                         // call [rcx+8]
    0x48, 0x8d, 0x15, 0x38, 0x11, 0x00, 0x00, // lea rdx, [FOUND]
    0x48, 0x8b, 0x4b, 0x40,                   // mov rcx, [rbx+0x40]
    0xff, 0x51, 0x08,                         // call [rcx+8]
    0x48, 0x8d, 0x15, 0x0a, 0x10, 0x00, 0x00, // lea rdx, [LINE_END]
    0x48, 0x8b, 0x4b, 0x40,                   // mov rcx, [rbx+0x40]
    0xff, 0x51, 0x08,                         // call [rcx+8]
    // RuntimeServices->ResetSystem(EfiResetShutdown, EFI_SUCCESS, 0, NULL)
    0xb9, 0x02, 0x00, 0x00, 0x00,             // mov ecx, 2
    0x31, 0xd2,                               // xor edx, edx
    0x45, 0x31, 0xc0,                         // xor r8d, r8d
    0x45, 0x31, 0xc9,                         // xor r9d, r9d
    0x48, 0x8b, 0x43, 0x58,                   // mov rax, [rbx+0x58]
    0xff, 0x50, 0x68,                         // call [rax+0x68]
    0xeb, 0xfe,                               // jmp .              it does not come back
];

/// A UKI with this manifest that says `version` and the entry when it is started; `filler` stands for the kernel.
#[must_use]
pub fn uki(version: &str, manifest: &[u8], filler: &[u8]) -> Vec<u8> {
    let program = program(version);
    let section = |name, content| NewSection { name, content };
    let sections = [
        section(".osrel", OS_RELEASE.as_bytes()),
        section(".cmdline", b"quiet"),
        section(".initrd", manifest),
        section(".linux", filler),
    ];
    let image = Image::parse(&program).and_then(|image| image.append(&sections));
    image.expect("invariant: the headers below are right")
}

/// The PE file with the program alone.
fn program(version: &str) -> Vec<u8> {
    let mut data = vec![0; PAGE];
    put(&mut data, data::NAME, &utf16("LoaderEntrySelected"));
    put(&mut data, data::GUID, &LOADER_GUID);
    put(&mut data, data::SIZE, &data::FOUND_BYTES.to_le_bytes());
    put(&mut data, data::LINE_END, &utf16("\r\n"));
    put(&mut data, data::SAYS, &utf16(&format!("{SAYS}{version} ")));
    put(&mut data, data::FOUND, &utf16("no entry"));
    let mut file = headers();
    file.resize(2 * FILE_ALIGNMENT, 0);
    file.extend(PROGRAM);
    file.resize(3 * FILE_ALIGNMENT, 0);
    file.extend(data);
    file
}

/// DOS header, PE signature, COFF header, optional header and the table of two sections.
fn headers() -> Vec<u8> {
    let mut file = vec![0; 2 * FILE_ALIGNMENT];
    let word = |value: usize| u32::try_from(value).unwrap_or(0).to_le_bytes();
    put(&mut file, 0, b"MZ");
    put(&mut file, 60, &word(64));
    put(&mut file, 64, b"PE\0\0");
    // COFF: x86-64, two sections, 240 bytes of optional header, executable, long addresses, no debug information.
    put(&mut file, 68, &[0x64, 0x86, 2, 0]);
    put(&mut file, 84, &[240, 0, 0x2e, 0x02]);
    // Optional header at 88: PE32+, sizes, entry point.
    put(&mut file, 88, &[0x0b, 0x02]);
    put(&mut file, 92, &word(FILE_ALIGNMENT));
    put(&mut file, 96, &word(PAGE));
    put(&mut file, 104, &word(CODE));
    put(&mut file, 108, &word(CODE));
    put(&mut file, 120, &word(PAGE));
    put(&mut file, 124, &word(FILE_ALIGNMENT));
    put(&mut file, 144, &word(3 * PAGE));
    put(&mut file, 148, &word(2 * FILE_ALIGNMENT));
    // Subsystem: EFI application; 16 data directories, all empty.
    put(&mut file, 156, &[10, 0]);
    put(&mut file, 196, &word(16));
    section_header(&mut file, 328, b".text", (CODE, FILE_ALIGNMENT), 2 * FILE_ALIGNMENT, 0x6000_0020);
    section_header(&mut file, 368, b".data", (DATA, PAGE), 3 * FILE_ALIGNMENT, 0xc000_0040);
    file
}

fn section_header(
    file: &mut [u8],
    at: usize,
    name: &[u8],
    (address, bytes): (usize, usize),
    offset: usize,
    flags: u32,
) {
    put(file, at, name);
    for (field, value) in [(8, bytes), (12, address), (16, bytes), (20, offset)] {
        put(file, at + field, &u32::try_from(value).unwrap_or(0).to_le_bytes());
    }
    put(file, at + 36, &flags.to_le_bytes());
}

/// With a zero behind it.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_uki_whose_manifest_can_be_read() {
        let uki = uki("v1", b"{}", &[7; 5000]);
        let image = Image::parse(&uki).unwrap();
        let names: Vec<_> = image.sections().iter().map(|section| section.name).collect();
        assert_eq!(names, [".text", ".data", ".osrel", ".cmdline", ".initrd", ".linux"]);
        assert_eq!(image.section(".initrd"), Some(&b"{}"[..]));
        assert_eq!(image.section(".text").map(|code| &code[..PROGRAM.len()]), Some(&PROGRAM[..]));
    }
}
