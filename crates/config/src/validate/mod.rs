//! Judgement of a configuration that could be read.
//!
//! Owns: every rule on values, each problem with its field path and what to write instead. All problems are
//! reported, not only the first. Does not: look at the machine (disks, links).
//! Source: docs/users/configuration.md; texts are those that clients of both generations know, where they know one.

mod cluster;
mod conflicts;
mod documents;
mod host;
mod kubernetes;
mod machine;
mod network;
mod static_pods;
mod storage;
mod volumes;
mod whole;

pub use host::NODE_ETC_FILES;
pub use static_pods::static_pod_id;

use crate::text;
use crate::{Config, Diagnostic, Document, LoadError, Loaded, Mode, Severity, yaml::Source};
use std::fmt;

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether it is refused for it.
    pub severity: Severity,
    /// Path of the field: `machine.network.hostname`.
    pub field: String,
    /// What is wrong and what to write.
    pub message: String,
    /// The document beside the v1alpha1 one that it is in, by its index.
    pub document: Option<usize>,
}

/// Everything for which a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidateError(pub Vec<Problem>);

impl std::error::Error for ValidateError {}

impl ValidateError {
    /// The first problems whole and how many more there are, in at most `bytes` bytes.
    pub fn brief(&self, bytes: usize) -> String {
        crate::diagnostic::brief(self.0.iter().map(Problem::line), bytes)
    }
}

impl Problem {
    fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

impl fmt::Display for ValidateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::line).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Checks every value of a v1alpha1 document that is not going to be installed by itself.
///
/// # Errors
/// [`ValidateError`] with all problems.
pub fn validate(config: &Config) -> Result<(), ValidateError> {
    let mut problems = judge(config, config, &[], Mode::Cloud);
    problems.retain(|p| p.severity == Severity::Error);
    if problems.is_empty() { Ok(()) } else { Err(ValidateError(problems)) }
}

impl Loaded {
    /// Judges the values for a machine of this `mode`; the result is warnings.
    ///
    /// # Errors
    /// [`LoadError`] with every value that is refused.
    pub fn validate(&self, mode: Mode) -> Result<Vec<Diagnostic>, LoadError> {
        let problems = judge(&self.own, &self.config, &self.documents, mode);
        let text = String::from_utf8_lossy(&self.text);
        let mut source = Source::new(&text);
        source.now_typed();
        for (first, last) in &self.layout.secret_lines {
            source.hide(*first, *last);
        }
        let mut placed: Vec<_> = problems.into_iter().map(|p| self.placed(p, &source)).collect();
        placed.sort_by_key(|d| (d.document, d.line, d.column));
        let (errors, warnings): (Vec<_>, Vec<_>) =
            placed.into_iter().partition(|d| d.severity == Severity::Error);
        if errors.is_empty() { Ok(warnings) } else { Err(LoadError(errors)) }
    }

    /// Why a machine that is given this config is out of reach: a worker without any CA of the node API asks no control
    /// plane for a certificate. With `cluster.ca.crt`, as in configs of the first generation, that is a warning: the cluster
    /// tells the CA when the kubelet has joined it. Else it is an error. Not part of [`Loaded::validate`]: a machine that has
    /// such a config goes on starting with it.
    pub fn lacks_authority(&self) -> Option<Diagnostic> {
        if !lacks_authority(&self.config) {
            return None;
        }
        let text = String::from_utf8_lossy(&self.text);
        let mut source = Source::new(&text);
        source.now_typed();
        for (first, last) in &self.layout.secret_lines {
            source.hide(*first, *last);
        }
        let (severity, message) = match self.config.cluster.ca.crt.0.trim().is_empty() {
            true => (
                Severity::Error,
                "a worker needs the certificate of the API's CA as `ca.crt`, or `acceptedCAs`, or cluster.ca.crt: without \
                 them it can verify no control plane and gets no certificate; copy machine.ca.crt of a control plane's config",
            ),
            false => (
                Severity::Warning,
                "no certificate of the API's CA: the API of this worker is out of reach until its kubelet has joined the \
                 cluster, which tells the CA; copy machine.ca.crt of a control plane's config",
            ),
        };
        let problem =
            Problem { severity, field: "machine.ca".to_owned(), message: message.to_owned(), document: None };
        Some(self.placed(problem, &source))
    }

    fn placed(&self, problem: Problem, source: &Source<'_>) -> Diagnostic {
        let other = problem.document.and_then(|index| self.layout.documents.get(index));
        let (document, places) = other.unwrap_or(&self.layout.config);
        let at = places.nearest(&problem.field);
        Diagnostic {
            severity: problem.severity,
            document: (*document).max(1),
            line: at.line,
            column: at.column,
            path: problem.field,
            message: problem.message,
            snippet: source.shown(at.line),
        }
    }
}

/// Whether it is a worker's that names no CA of the node API.
pub fn lacks_authority(config: &Config) -> bool {
    let machine = &config.machine;
    !machine.machine_type.is_control_plane()
        && machine.ca.crt.0.trim().is_empty()
        && machine.accepted_cas.iter().all(|accepted| accepted.crt.0.trim().is_empty())
}

/// Judges the v1alpha1 document as it stands (`own`), the documents, and what they are `together`.
fn judge(own: &Config, together: &Config, others: &[Document], mode: Mode) -> Vec<Problem> {
    let mut problems = v1alpha1(own, mode);
    let of_all = v1alpha1(together, mode).list;
    // What a document gives is not missing.
    problems.list.retain(|problem| of_all.contains(problem));
    for (index, document) in others.iter().enumerate() {
        problems.document = Some(index);
        documents::check(document, &mut problems);
        conflicts::check(document, own, &mut problems);
    }
    volumes::conflicts(others, &mut problems);
    problems.document = None;
    network::members(own, others, &mut problems);
    whole::check(together, others, mode, &mut problems);
    // A document's fault comes back where the document was put; once is enough, where it stands.
    let told: Vec<_> = problems.list.iter().map(|p| p.message.clone()).collect();
    problems.list.extend(of_all.into_iter().filter(|p| !told.contains(&p.message)));
    problems.list
}

fn v1alpha1(config: &Config, mode: Mode) -> Problems {
    let mut problems = Problems::default();
    machine::check(config, mode, &mut problems);
    cluster::check(config, &mut problems);
    problems
}

/// What was found so far.
#[derive(Default)]
struct Problems {
    list: Vec<Problem>,
    document: Option<usize>,
}

impl Problems {
    #[track_caller]
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Error, field.into(), message.into());
    }

    #[track_caller]
    fn warn(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.push(Severity::Warning, field.into(), message.into());
    }

    #[track_caller]
    fn push(&mut self, severity: Severity, field: String, message: String) {
        // Which rules there are and which of them the tests have broken.
        #[cfg(test)]
        rule_tests::broken(std::panic::Location::caller());
        self.list.push(Problem { severity, field, message, document: self.document });
    }

    /// Adds the message of a failed check.
    #[track_caller]
    fn expect(&mut self, field: impl Into<String>, result: Result<(), String>) {
        if let Err(message) = result {
            self.add(field, message);
        }
    }
}

#[cfg(test)]
mod document_rule_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
