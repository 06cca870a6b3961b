//! Whether a file is a kernel that an image's machines can start; asked wherever a kernel comes from, on nodes too.
//!
//! Fails by: [`Error::Kernel`], which says what the file is instead and what to give.

use ondisk::{Architecture, kernel};

use crate::Error;

/// The release of a kernel that these machines can start; `name` is what errors call it.
pub(crate) fn check<'i>(name: &str, image: &'i [u8], architecture: Architecture) -> Result<&'i str, Error> {
    let wrong = |reason: String| Error::Kernel { kernel: name.to_owned(), reason };
    let found = kernel::architecture(image);
    match (found, kernel::release(image)) {
        (Some(found), _) if found != architecture => Err(wrong(format!(
            "it is for {}, and the image is for {}: give one for the image's machines",
            found.name(),
            architecture.name()
        ))),
        (Some(_), Some(_)) if kernel::is_cut_off(image) => {
            Err(wrong("it is cut off: copy it once more, or build it again".to_owned()))
        }
        (Some(_), Some(release)) => Ok(release),
        _ if kernel::is_packed(image) => Err(wrong(format!(
            "it is packed for the firmware (CONFIG_EFI_ZBOOT), where nobody can see what it is: give {}",
            built_as(architecture)
        ))),
        _ => Err(wrong(format!(
            "it is no kernel for {}, which {} is",
            architecture.name(),
            built_as(architecture)
        ))),
    }
}

/// Where the kernel's own build leaves an image.
fn built_as(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "arch/x86/boot/bzImage, or an installed vmlinuz-RELEASE",
        Architecture::Arm64 => "arch/arm64/boot/Image, or an installed vmlinuz-RELEASE that is not packed",
    }
}
