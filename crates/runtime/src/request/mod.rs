//! The scope of a request: a panic of work that answers one ends that request, any other panic ends the process.
//!
//! Owns: the thread's note of the call that is being answered, what becomes of a panic, and the process' panic hook.
//! Does not: spawn (`work`), or know gRPC's services (`layer`).
//! Order: work enters the scope for each poll and leaves it behind; what it spawns is outside unless it goes through `work`.
//! Fails by: `Internal` with the name of the call; the log has the place. A panic while another one unwinds aborts, as
//! always in Rust.

mod layer;
mod work;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Arc;

use ondisk::redact::redacted;
use tonic::Status;

pub use layer::Requests;
pub use work::{blocking, carried, feed, inherit, of_call, spawn};

/// Bytes of a call's name in an answer and in the log: longer ones are not ours.
const MOST_NAME_BYTES: usize = 128;
/// Bytes of a panic's text in the log.
const MOST_TEXT_BYTES: usize = 512;

/// Where a panic of a request is reported. Called outside the scope: a panic of its own ends the process.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// A request that is being answered.
pub struct Call {
    name: String,
    report: Report,
}

/// A request's work panicked; it was reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} ended by a panic on the node, whose logs have the place (machined, apid or trustd)")]
pub struct Panicked {
    call: String,
}

impl From<Panicked> for Status {
    fn from(panicked: Panicked) -> Self {
        Self::internal(panicked.to_string())
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
    /// Place and message of a panic that unwinds through a request's work.
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

impl fmt::Debug for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Call").field(&self.name).finish()
    }
}

impl Call {
    /// A call of this path.
    pub fn new(path: &str, report: &Report) -> Arc<Self> {
        Arc::new(Self { name: bounded(path, MOST_NAME_BYTES), report: report.clone() })
    }

    /// The call that this thread answers now.
    fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    fn panicked(&self, payload: &(dyn Any + Send)) -> Panicked {
        // From a thread that worked for the same call, which has reported it.
        if let Some(panicked) = payload.downcast_ref::<Panicked>() {
            return panicked.clone();
        }
        let seen = SEEN.try_with(RefCell::take).ok().flatten();
        let seen = seen.unwrap_or_else(|| format!("at an unknown place: {}", message(payload)));
        (self.report)(&format!("{} ended by a panic {seen}", self.name));
        Panicked { call: self.name.clone() }
    }
}

/// Sets the thread's call until it is dropped.
pub struct Entered(Option<Arc<Call>>);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        // A thread that ends has no scope any more.
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

fn enter(call: Option<Arc<Call>>) -> Entered {
    Entered(CURRENT.try_with(|current| current.replace(call)).ok().flatten())
}

/// Leaves the scope: for what a request changes for everybody. A panic halfway ends the process, which starts again from
/// what is kept, rather than going on with half a change.
#[must_use]
pub fn outside() -> Entered {
    enter(None)
}

/// Runs work in the scope of a call. Without a call it is no request's work, and a panic goes on.
fn contain<T>(call: Option<&Arc<Call>>, work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let Some(call) = call else { return Ok(work()) };
    let entered = enter(Some(call.clone()));
    let done = catch_unwind(AssertUnwindSafe(work));
    drop(entered);
    done.map_err(|payload| call.panicked(&*payload))
}

/// Has a panic outside of requests end the process after one line. `program` begins the line.
pub fn end_on_other_panics(program: &str) {
    let program = program.to_owned();
    install(move |_, text| {
        tell(&format!("{program}: a panic {text}"));
        std::process::abort();
    });
}

/// Has panics of requests noted, and all others given to `otherwise`.
fn install(otherwise: impl Fn(&PanicHookInfo<'_>, &str) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |panic| {
        let text = describe(panic);
        if !CURRENT.try_with(|current| current.try_borrow().is_ok_and(|call| call.is_some())).unwrap_or(false)
        {
            otherwise(panic, &text);
            return;
        }
        // A second one while the first unwinds aborts before anything is reported.
        if let Ok(Some(first)) = SEEN.try_with(|seen| seen.replace(Some(text.clone()))) {
            tell(&format!("a panic {text} after one {first}"));
        }
    }));
}

/// To the kernel log and to stderr, without a lock of our own: the panic may hold any.
fn tell(line: &str) {
    if let Ok(kmsg) = sys::console::open_kmsg() {
        // Nobody is left to hear of an error.
        let _ = sys::console::write_record(&kmsg, &format!("<2>billet: {line}"));
    }
    eprintln!("{line}");
}

/// `at FILE:LINE:COLUMN: MESSAGE`, on one line, without secrets of addresses.
fn describe(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!("at {place}: {}", message(panic.payload()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("without a text");
    // What is cut off must not have been what shows that the rest is secret.
    bounded(&redacted(text), MOST_TEXT_BYTES)
}

/// Text without control characters, cut between characters.
fn bounded(text: &str, most_bytes: usize) -> String {
    let mut shown = String::new();
    for part in text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
    {
        if shown.len().saturating_add(part.len_utf8()) > most_bytes {
            shown.push('…');
            return shown;
        }
        shown.push(part);
    }
    shown
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
