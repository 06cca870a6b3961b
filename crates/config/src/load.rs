//! The bytes of a configuration to [`Loaded`]: the typed content, beside the text as it was sent.
//!
//! Owns: the stream as a whole, which document is what, the limits, and the snippets of remarks.
//! Does not: fetch or keep it; judge values (`validate`).
//! Order: bytes, YAML, the guides' forms, types; every fault of every step is reported, those of YAML's syntax end it.
//! Fails by: [`LoadError`] with every error, each with its place.
//! Source: docs/users/configuration.md.

use crate::{
    Diagnostic, Document, LoadError,
    diagnostic::Severity,
    documents::fold,
    quirks,
    schema::{Decode, Findings, Places, Walk},
    v1alpha1::{Config, VERSION},
    yaml::{self, Mark, Node, Source, shortened},
};
use zeroize::Zeroizing;

/// Longest text: some thousand times a generated configuration, and room for manifests in it.
pub const MAX_BYTES: usize = 16 << 20;

/// Where a configuration is to be used: it decides which parts are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A machine with a disk of its own to install to.
    Metal,
    /// A virtual machine made from an image.
    Cloud,
    /// A container on somebody else's kernel.
    Container,
}

impl Mode {
    /// What a platform (`talos.platform=`) asks of a config. Source: docs/users/configuration.md.
    #[must_use]
    pub fn of_platform(name: &str) -> Self {
        match name {
            "metal" | "packet" | "equinixMetal" => Self::Metal,
            "container" => Self::Container,
            _ => Self::Cloud,
        }
    }

    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cloud => "cloud",
            Self::Container => "container",
        }
    }
}

/// A configuration that could be read. It holds secrets, hence no `Debug`.
#[derive(Clone)]
pub struct Loaded {
    /// As it was sent, with comments and order.
    pub text: Zeroizing<Vec<u8>>,
    /// The v1alpha1 document.
    pub config: Config,
    /// The other documents, in their order.
    pub documents: Vec<Document>,
    /// What was taken although it deserves a remark.
    pub warnings: Vec<Diagnostic>,
    /// The v1alpha1 document as it stands, without what other documents put into `config`.
    pub(crate) own: Config,
    pub(crate) layout: Layout,
}

/// Where things stand in the text.
#[derive(Clone, Default)]
pub(crate) struct Layout {
    /// The number of the v1alpha1 document, and its fields.
    pub(crate) config: (usize, Places),
    /// The same for each other document.
    pub(crate) documents: Vec<(usize, Places)>,
    /// Lines that hold secrets.
    pub(crate) secret_lines: Vec<(usize, usize)>,
}

/// Reads a configuration: one v1alpha1 document and any number of others.
///
/// # Errors
/// [`LoadError`] with every unknown key, wrong type and syntax error.
pub fn load(bytes: &[u8]) -> Result<Loaded, LoadError> {
    let text = text_of(bytes)?;
    let mut reading = Reading::default();
    let parsed = yaml::read(text);
    let has_syntax_error = !parsed.faults.is_empty();
    for (document, at, message) in parsed.faults {
        reading.findings.add(Severity::Error, document, at, "", message);
    }
    for line in parsed.elisions {
        let message = "a line of dots is no YAML; it is read as lines that were left out".to_owned();
        reading.findings.add(Severity::Warning, 1, Mark { line, column: 1 }, "", message);
    }
    for (index, node) in parsed.documents.into_iter().enumerate() {
        if !node.is_null() {
            reading.document(index + 1, node);
        }
    }
    if reading.config.is_none() && !has_syntax_error {
        reading.no_config();
    }
    reading.findings.name_later();
    let mut source = Source::new(text);
    if !has_syntax_error {
        source.now_typed();
    }
    reading.finish(bytes, source)
}

/// Reads a configuration and gives its v1alpha1 document only.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str) -> Result<Config, LoadError> {
    load(text.as_bytes()).map(|loaded| loaded.config)
}

fn text_of(bytes: &[u8]) -> Result<&str, LoadError> {
    let refuse = |at: Mark, message: String| {
        let (line, column) = (at.line, at.column);
        let (path, snippet) = (String::new(), String::new());
        LoadError(vec![Diagnostic {
            severity: Severity::Error,
            document: 1,
            line,
            column,
            path,
            message,
            snippet,
        }])
    };
    let start = Mark { line: 1, column: 1 };
    if bytes.len() > MAX_BYTES {
        let message = format!("the configuration has {} bytes; at most {MAX_BYTES} are read", bytes.len());
        return Err(refuse(start, message));
    }
    std::str::from_utf8(bytes).map_err(|e| {
        let good = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
        let last = good.rsplit('\n').next().unwrap_or("");
        let at = Mark { line: good.matches('\n').count() + 1, column: last.chars().count() + 1 };
        refuse(at, "the text is not UTF-8 here; save the file in that encoding".to_owned())
    })
}

#[derive(Default)]
struct Reading {
    findings: Findings,
    config: Option<Config>,
    documents: Vec<Document>,
    layout: Layout,
    seen: Vec<(String, usize)>,
}

impl Reading {
    fn document(&mut self, number: usize, node: Node) {
        let is_other = node.get("kind").is_some() && node.get("machine").is_none();
        let is_config = ["machine", "cluster", "version"].iter().any(|key| node.get(key).is_some());
        match (is_other, is_config) {
            (true, _) => self.other(number, &node),
            (false, true) => self.v1alpha1(number, node),
            (false, false) => {
                let message = "missing kind: neither a machine configuration, which has `machine:`, nor a document with `apiVersion:` and `kind:`";
                self.findings.add(Severity::Error, number, node.mark, "", message.to_owned());
            }
        }
    }

    fn v1alpha1(&mut self, number: usize, mut node: Node) {
        if !self.is_first("v1alpha1.Config", number, node.mark) {
            return;
        }
        let mut walk = Walk::new(number, &mut self.findings);
        quirks::rewrite(&mut node, &mut walk);
        let config = Config::decode(&node, &mut walk);
        let places = std::mem::take(&mut walk.places);
        let config = config.map(|config| with_version(config, &node, &mut walk));
        self.layout.config = (number, places);
        // What cannot be read at all has left an error; the default keeps the other documents' errors coming.
        self.config = Some(config.unwrap_or_default());
    }

    fn other(&mut self, number: usize, node: &Node) {
        let mut walk = Walk::new(number, &mut self.findings);
        let document = Document::read(node, &mut walk);
        let places = std::mem::take(&mut walk.places);
        let Some(document) = document else { return };
        let identity = format!("{} {}", document.kind(), document.name().unwrap_or(""));
        if self.is_first(identity.trim_end(), number, node.mark) {
            self.documents.push(document);
            self.layout.documents.push((number, places));
        }
    }

    /// Whether no document of this kind and name came before.
    fn is_first(&mut self, identity: &str, number: usize, at: Mark) -> bool {
        if let Some((_, first)) = self.seen.iter().find(|(known, _)| known == identity) {
            let message =
                format!("a second document `{}`; document {first} is one already", shortened(identity));
            self.findings.add(Severity::Error, number, at, "", message);
            return false;
        }
        self.seen.push((identity.to_owned(), number));
        true
    }

    fn no_config(&mut self) {
        let has_error = self.findings.remarks.iter().any(|r| r.severity == Severity::Error);
        let message = match (self.documents.is_empty(), has_error) {
            (true, false) => "config not found: the text holds no document",
            (true, true) => return,
            (false, _) => {
                "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?"
            }
        };
        self.findings.add(Severity::Error, 1, Mark { line: 1, column: 1 }, "", message.to_owned());
    }

    fn finish(self, bytes: &[u8], mut source: Source<'_>) -> Result<Loaded, LoadError> {
        for (first, last) in &self.findings.secret_lines {
            source.hide(*first, *last);
        }
        let left_out = self.findings.left_out();
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        for mut remark in self.findings.remarks {
            remark.snippet = source.shown(remark.line);
            let list = if remark.severity == Severity::Error { &mut errors } else { &mut warnings };
            list.push(remark);
        }
        errors.sort_by_key(|d| (d.document, d.line, d.column));
        warnings.sort_by_key(|d| (d.document, d.line, d.column));
        if let Some(last) = errors.last_mut().filter(|_| left_out > 0) {
            last.message.push_str(&format!(" (and {left_out} more remarks)"));
        }
        match self.config.filter(|_| errors.is_empty()) {
            Some(own) => {
                let mut config = own.clone();
                fold(&mut config, &self.documents);
                let layout = Layout { secret_lines: self.findings.secret_lines, ..self.layout };
                let text = Zeroizing::new(bytes.to_vec());
                Ok(Loaded { text, config, documents: self.documents, warnings, own, layout })
            }
            None => Err(LoadError(errors)),
        }
    }
}

fn with_version(mut config: Config, node: &Node, walk: &mut Walk<'_>) -> Config {
    if node.get("version").is_none() {
        walk.warn(node.mark, format!("`version` is missing; `version: {VERSION}` is taken"));
        VERSION.clone_into(&mut config.version);
    } else if let Some(at) = node.get("version").filter(|n| n.text().is_some()).map(|n| n.mark)
        && config.version != VERSION
    {
        // What is no text was told already.
        let version = shortened(&config.version);
        walk.error_at("version", at, format!("version `{version}` is not known; write `version: {VERSION}`"));
    }
    config
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
