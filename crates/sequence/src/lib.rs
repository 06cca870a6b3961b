//! Sequence > phase > task, as const data.
//!
//! Owns: the shape in which every order of steps in Billet is written down, and how it is printed.
//! Does not: run tasks. init runs its sequences one task after the other (`init::runner`); machined runs the tasks
//! of a phase side by side (`runtime::sequencer`). Both read the same shape, so `cargo xtask plan` prints
//! them all and a golden file holds them still.

#![cfg_attr(not(any(test, feature = "std")), no_std)]

use core::fmt;

/// An order of phases with a name. `F` is the type of a task's function.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<F: 'static> {
    /// As in events and logs: `boot`, `reboot`.
    pub name: &'static str,
    /// One sentence for people.
    pub about: &'static str,
    /// Run one after the other.
    pub phases: &'static [Phase<F>],
}

/// A step of a sequence: it ends when all its tasks have ended.
#[derive(Debug, Clone, Copy)]
pub struct Phase<F: 'static> {
    /// Kebab-case noun: `root`, `system-requirements`.
    pub name: &'static str,
    /// The tasks. Whether they run side by side is the runner's choice.
    pub tasks: &'static [Task<F>],
}

/// A function with its name.
#[derive(Debug, Clone, Copy)]
pub struct Task<F: 'static> {
    /// The function's name.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The function.
    pub run: F,
}

/// Makes a [`Task`] whose printed name is its function's name.
#[macro_export]
macro_rules! task {
    ($module:ident :: $name:ident, $about:literal) => {
        $crate::Task { name: stringify!($name), about: $about, run: $module::$name }
    };
    ($name:ident, $about:literal) => {
        $crate::Task { name: stringify!($name), about: $about, run: $name }
    };
}

impl<F> Sequence<F> {
    /// Every task in order, with the name of its phase.
    pub fn tasks(&self) -> impl Iterator<Item = (&'static str, &'static Task<F>)> + use<F> {
        self.phases.iter().flat_map(|phase| phase.tasks.iter().map(move |task| (phase.name, task)))
    }
}

/// The form of `cargo xtask plan` and of the golden files.
impl<F> fmt::Display for Sequence<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        for phase in self.phases {
            writeln!(f, "  {}", phase.name)?;
            for task in phase.tasks {
                writeln!(f, "    {:<34} {}", task.name, task.about)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn light() {}
    fn wait() {}

    const KETTLE: Sequence<fn()> = Sequence {
        name: "kettle",
        about: "Boils water.",
        phases: &[
            Phase { name: "heat", tasks: &[task!(light, "lights the flame")] },
            Phase { name: "boil", tasks: &[task!(wait, "waits for steam")] },
        ],
    };

    #[test]
    fn prints_one_line_a_step() {
        let expected = "kettle: Boils water.\n  heat\n    light                              lights the flame\n  \
                        boil\n    wait                               waits for steam\n";
        assert_eq!(KETTLE.to_string(), expected);
    }

    #[test]
    fn tasks_come_in_order_with_their_phase() {
        let names: Vec<_> = KETTLE.tasks().map(|(phase, task)| (phase, task.name)).collect();
        assert_eq!(names, [("heat", "light"), ("boil", "wait")]);
    }
}
