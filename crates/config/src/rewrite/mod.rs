//! A configuration in its other form: sections of the v1alpha1 document as documents, or documents as sections.
//!
//! Owns: the order of the steps, their check, and the report of what stays as it is. Each step is one concern of
//! `documents::unfold` or, the other way, of `documents::fold`; it is taken back if the result would be refused where
//! the input is not, or would not mean the same (`normal` says what that is).
//! Does not: keep comments. Order and spelling of what stays are kept.
//! Fails by: [`RewriteError`]; no text of a configuration is in it but what [`LoadError`] shows.

mod kept;
mod normal;

pub use kept::Kept;

use crate::{
    Document, GenerateError, LoadError, Loaded, Mode, Secret,
    documents::{Concern, beyond, concerns, fold_one, networks_without_flannel},
    load,
    patch::{self, PatchError},
    v1alpha1::{Config, MachineControlPlane},
    write,
};
use normal::normal;

/// The form that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Documents, as clients of v1.14 write them.
    Documents,
    /// Sections of the v1alpha1 document, as clients up to v1.13 write them.
    V1alpha1,
}

/// A configuration in another form.
pub struct Rewritten {
    /// Its text, with all secrets of the input.
    pub text: Secret,
    /// What has no counterpart in this form, by its place in the text.
    pub kept: Vec<Kept>,
}

/// Why a configuration cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// It would be refused as it is.
    #[error("the configuration would be refused as it is: mend it first\n{0}")]
    Refused(#[from] LoadError),
    /// The result could not be written.
    #[error(transparent)]
    Write(#[from] GenerateError),
    /// Input or result could not be read as trees.
    #[error("keep the order of fields: {0}")]
    Order(#[from] PatchError),
    /// A fault of this program: the input is untouched.
    #[error(
        "the rewritten configuration would not mean the same ({0}); nothing was written, please report this"
    )]
    Differs(String),
}

/// Every mode; a configuration is checked in those in which the input is accepted.
const MODES: [Mode; 3] = [Mode::Metal, Mode::Cloud, Mode::Container];

/// Writes the configuration `bytes` in another form.
///
/// # Errors
/// [`RewriteError`].
pub fn rewrite(bytes: &[u8], form: Form) -> Result<Rewritten, RewriteError> {
    let loaded = load(bytes)?;
    let meaning = Meaning::of(&loaded)?;
    let start = State { own: loaded.own.clone(), documents: loaded.documents.clone() };
    let (state, kept) = match form {
        Form::Documents => to_documents(start, &meaning),
        Form::V1alpha1 => to_section(start, &meaning),
    };
    let plain = Secret::new(write(&state.own, &state.documents)?);
    let input = String::from_utf8_lossy(bytes);
    let text = Secret::new(patch::restyled(&input, plain.expose_secret())?);
    meaning.is_kept_by(text.expose_secret()).map_err(RewriteError::Differs)?;
    Ok(Rewritten { text, kept })
}

/// The fields of the v1alpha1 document that say what documents of this kind say; empty where no section does.
pub fn sections(kind: &str) -> Vec<&'static str> {
    let own = concerns().filter(|concern| concern.kinds.contains(&kind));
    own.flat_map(|concern| concern.sections).copied().collect()
}

/// A configuration on its way.
#[derive(Clone, PartialEq)]
struct State {
    own: Config,
    documents: Vec<Document>,
}

/// What the result has to be.
struct Meaning {
    /// What all documents and sections of the input say together.
    model: Config,
    /// The same in the form in which it is compared.
    normal: Config,
    /// Where the input is accepted.
    modes: Vec<Mode>,
}

impl Meaning {
    fn of(loaded: &Loaded) -> Result<Self, LoadError> {
        let checked = MODES.map(|mode| (mode, loaded.validate(mode).err()));
        let modes: Vec<_> =
            checked.iter().filter(|(_, error)| error.is_none()).map(|(mode, _)| *mode).collect();
        match checked.into_iter().find_map(|(mode, error)| error.filter(|_| mode == Mode::Cloud)) {
            Some(error) if modes.is_empty() => Err(error),
            _ => Ok(Self { model: loaded.config.clone(), normal: normal(&loaded.config), modes }),
        }
    }

    /// Reads `text` as a node would; the error says why it is not what the input is.
    fn is_kept_by(&self, text: &str) -> Result<(), String> {
        let loaded = load(text.as_bytes()).map_err(|error| first(&error))?;
        for mode in &self.modes {
            loaded.validate(*mode).map_err(|error| first(&error))?;
        }
        if normal(&loaded.config) == self.normal {
            return Ok(());
        }
        Err("it would not mean the same".to_owned())
    }

    fn is_kept(&self, state: &State) -> Result<(), String> {
        let text = write(&state.own, &state.documents).map_err(|error| error.to_string())?;
        self.is_kept_by(Secret::new(text).expose_secret())
    }
}

/// The first fault without its place, which is one in a text that is not shown.
fn first(error: &LoadError) -> String {
    error.0.first().map_or_else(String::new, |fault| format!("{}: {}", fault.path, fault.message))
}

fn to_documents(mut state: State, meaning: &Meaning) -> (State, Vec<Kept>) {
    let mut refused: Vec<(&Concern, String)> = Vec::new();
    for concern in concerns() {
        let mut next = state.clone();
        (concern.unfold)(&mut next.own, &mut next.documents);
        drop_empty(&mut next);
        if next == state {
            continue;
        }
        match meaning.is_kept(&next) {
            Ok(()) => state = next,
            Err(reason) => refused.push((concern, reason)),
        }
    }
    let kept = kept::sections(&state.own, &refused);
    (state, kept)
}

fn to_section(mut state: State, meaning: &Meaning) -> (State, Vec<Kept>) {
    let mut kept = Vec::new();
    for concern in concerns() {
        let mut next = State { own: state.own.clone(), documents: Vec::new() };
        let mut moved = Vec::new();
        for document in &state.documents {
            let (goes, stays) = match concern.kinds.contains(&document.kind()) {
                true => split(document, &state.documents, meaning, &mut kept),
                false => (None, Some(document.clone())),
            };
            moved.extend(goes);
            next.documents.extend(stays);
        }
        if moved.is_empty() {
            continue;
        }
        moved.iter().for_each(|document| fold_one(&mut next.own, document));
        let is_flannel = |d: &Document| matches!(d, Document::KubeFlannelCNIConfig(_));
        if !next.documents.iter().any(is_flannel) {
            networks_without_flannel(&mut next.own, &moved);
        }
        normal::name_device(&mut next.own);
        match meaning.is_kept(&next) {
            Ok(()) => state = next,
            Err(reason) => kept.extend(moved.iter().map(|document| Kept::document(document, reason.clone()))),
        }
    }
    let has_section = |document: &&Document| concerns().any(|c| c.kinds.contains(&document.kind()));
    let without = state.documents.iter().filter(|document| !has_section(document));
    kept.extend(without.map(|document| Kept::document(document, "no section says this".to_owned())));
    (state, kept)
}

/// What of a document a section can say, and what it cannot.
fn split(
    document: &Document,
    all: &[Document],
    meaning: &Meaning,
    kept: &mut Vec<Kept>,
) -> (Option<Document>, Option<Document>) {
    if let Document::VolumeConfig(volume) = document {
        let is_of_system = matches!(volume.name.as_str(), "STATE" | "EPHEMERAL");
        let mut goes = crate::documents::VolumeConfig { name: volume.name.clone(), ..Default::default() };
        let mut stays = volume.clone();
        if is_of_system {
            goes.encryption = stays.encryption.take();
        }
        let rest = (stays
            != crate::documents::VolumeConfig { name: volume.name.clone(), ..Default::default() })
        .then_some(Document::VolumeConfig(stays));
        let why = "of volumes a section says the encryption of STATE and EPHEMERAL alone";
        kept.extend(rest.as_ref().map(|document| Kept::document(document, why.to_owned())));
        return (goes.encryption.is_some().then_some(Document::VolumeConfig(goes)), rest);
    }
    match beyond(document, all, &meaning.model).as_slice() {
        [] => (Some(document.clone()), None),
        fields => {
            kept.push(Kept::document(document, format!("no section says {}", fields.join(", "))));
            (None, Some(document.clone()))
        }
    }
}

/// Drops sections in which nothing is left. One that was empty before stays where no document takes its place: that a part
/// of the control plane is there is said by its section.
fn drop_empty(state: &mut State) {
    fn empty<T: Default + PartialEq>(section: &mut Option<T>) {
        section.take_if(|section| *section == T::default());
    }
    let machine = &mut state.own.machine;
    empty(&mut machine.features);
    empty(&mut machine.kernel);
    empty(&mut machine.udev);
    machine.control_plane.take_if(|parts| *parts == MachineControlPlane::default());
    empty(&mut state.own.cluster.network);
    if state.documents.iter().any(|document| matches!(document, Document::KubeAPIServerConfig(_))) {
        empty(&mut state.own.cluster.api_server);
    }
}
