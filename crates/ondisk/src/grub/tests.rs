//! Images as GRUB 2.12 makes them, cut down to the fields that count.

use super::*;

fn boot_image() -> Vec<u8> {
    let mut image = vec![0x11; SECTOR_BYTES];
    put(&mut image, 0, &[0xEB, 0x63, 0x90]);
    put(&mut image, CORE_SECTOR, &1_u64.to_le_bytes());
    put(&mut image, DRIVE_CHECK, &[JUMP, 0x05]);
    put(&mut image, 510, &[0x55, 0xAA]);
    image
}

/// A first sector with its block list, and this much more.
fn core(more: usize) -> Vec<u8> {
    let mut image = vec![0; SECTOR_BYTES];
    put(&mut image, BLOCK_LIST, &2_u64.to_le_bytes());
    let sectors = u16::try_from(more.div_ceil(SECTOR_BYTES)).unwrap();
    put(&mut image, BLOCK_LIST + 8, &sectors.to_le_bytes());
    put(&mut image, BLOCK_LIST + 10, &0x820_u16.to_le_bytes());
    image.extend(vec![0x22; more]);
    image
}

#[test]
fn the_first_sector_learns_where_the_core_image_lies() {
    let image = boot_image();
    let code = boot_code(&image, 1_050_624).unwrap();
    assert_eq!(code.len(), 440);
    assert_eq!(le64(&code, 0x5C), Some(1_050_624));
    assert_eq!(code[0x66..0x68], [0x90, 0x90]);
    let changed: Vec<usize> = (0..CODE_BYTES).filter(|at| code[*at] != image[*at]).collect();
    assert!(changed.iter().all(|at| (0x5C..0x64).contains(at) || (0x66..0x68).contains(at)), "{changed:?}");
}

#[test]
fn the_core_image_learns_where_its_second_sector_lies() {
    let placed = core_image(&core(700), 1_050_624).unwrap();
    assert_eq!(placed.len(), 3 * SECTOR_BYTES);
    assert_eq!(le64(&placed, 500), Some(1_050_625));
    assert_eq!((le16(&placed, 508), le16(&placed, 510)), (Some(2), Some(0x820)));
    assert_eq!(placed[512..512 + 700], [0x22; 700]);
    assert!(placed[512 + 700..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_not_grubs_is_refused() {
    assert_eq!(boot_code(&boot_image()[..511], 1), Err(Error::BootImage));
    for at in [0x5C, 0x66, 510] {
        let mut image = boot_image();
        image[at] ^= 1;
        assert_eq!(boot_code(&image, 1), Err(Error::BootImage), "{at}");
    }
    let mut two_pieces = core(700);
    put(&mut two_pieces, BLOCK_LIST - BLOCK_BYTES + 8, &1_u16.to_le_bytes());
    let mut short = core(700);
    short.truncate(1024);
    for image in [two_pieces, short, core(0), vec![], vec![0; 40]] {
        assert_eq!(core_image(&image, 1), Err(Error::CoreImage));
    }
}

#[test]
fn a_block_is_read_as_grub_writes_it() {
    let empty = Environment::empty_block();
    assert_eq!((empty.len(), &empty[..26]), (1024, &b"# GRUB Environment Block\n#"[..]));
    assert_eq!(Environment::parse(&empty), Some(Environment::default()));
    let mut block = empty.clone();
    // Written by GRUB 2.12's save_env over an empty block.
    put(&mut block, 25, b"generation=000002\nstarts=3\nodd=a\\\\b\\\nc\n");
    let values = Environment::parse(&block).unwrap();
    assert_eq!((values.get("generation"), values.get("starts")), (Some("000002"), Some("3")));
    assert_eq!((values.get("odd"), values.get("none")), (Some("a\\b\nc"), None));
    assert_eq!(Environment::parse(&block[1..]), None);
    assert_eq!(Environment::parse(b""), None);
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let mut seed = 7_u32;
    for length in (0..1100).step_by(7) {
        let noise = (0..length).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_le_bytes()[3]
        });
        let noise: Vec<u8> = noise.collect();
        let _ = Environment::parse(&[b"# GRUB Environment Block\n", &noise[..]].concat());
        let _ = boot_code(&noise, 9);
        let _ = core_image(&noise, 9);
    }
}

#[test]
fn words_are_quoted() {
    assert_eq!(quote("console=ttyS0"), "'console=ttyS0'");
    assert_eq!(quote("a $b'c;"), r"'a $b'\''c;'");
}
