//! `xtask plan`: every sequence of a node, in the order in which it runs: init's, then machined's.
//!
//! A golden file (`xtask/testdata/plan.txt`) holds the text still: a change of an order is a change in review.

use anyhow::{Context, Result};

pub(crate) fn run() -> Result<()> {
    print!("{}", plan()?);
    Ok(())
}

fn plan() -> Result<String> {
    let mut text = String::from("init\n====\n\n");
    init::sequences::print_plan(&mut text).context("print the sequences of init")?;
    text.push_str("\nmachined\n========\n\n");
    service_manager::print_plan(&mut text).context("print the sequences of machined")?;
    // Each program ends its text as it likes.
    Ok(text.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use crate::place;

    #[test]
    fn the_order_is_the_golden_one() {
        let golden = place::repository().join("xtask/testdata/plan.txt");
        let plan = super::plan().unwrap();
        if std::env::var_os("BILLET_BLESS").is_some() {
            std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
            std::fs::write(&golden, &plan).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert!(
            plan == expected,
            "the plan has changed; if it should, run `BILLET_BLESS=1 cargo test -p xtask`:\n{plan}"
        );
    }
}
