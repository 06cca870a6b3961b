//! The program that everything was for.

use crate::boot::Boot;
use crate::failure::Failure;

/// Path of machined in the root.
pub const PROGRAM: &str = "/usr/bin/machined";

/// Makes sure that the root holds machined, readable and a program, before it is called a root.
pub fn check_machined(boot: &mut Boot<'_>) -> Result<(), Failure> {
    let mut head = [0; 4];
    boot.kernel.read_at(PROGRAM, 0, &mut head).map_err(Failure::at("read", PROGRAM))?;
    if head != *b"\x7fELF" {
        return Err(Failure::reason("check", PROGRAM, "is not a program"));
    }
    Ok(())
}
