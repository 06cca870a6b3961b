//! Writes files for the users that read them.

use std::path::Path;

use kubernetes::{File, Owner};
use runtime::beneath;

use crate::Error;

/// What only its owner reads.
const FILE_MODE: u32 = 0o400;
/// A directory of one owner.
const DIRECTORY_MODE: u32 = 0o700;

/// Has a file hold this, whole or as before. Its directory belongs to the same user.
///
/// # Errors
/// [`Error::File`].
pub fn write(root: &Path, file: &File) -> Result<(), Error> {
    let path = Path::new(&file.path);
    let failed = |source| Error::File { what: "write", path: path.to_owned(), source };
    let owner = owner(file.owner);
    let (directory, name) = beneath::make_parent(root, path).map_err(failed)?;
    // Directories of root's own, as /etc/kubernetes, hold files of others too.
    if file.owner != Owner::Root {
        directory.set_mode(DIRECTORY_MODE).map_err(failed)?;
        owner.map_or(Ok(()), |id| directory.set_owner(id)).map_err(failed)?;
    }
    directory.replace_for(&name, file.contents.expose_secret().as_bytes(), FILE_MODE, owner).map_err(failed)
}

/// Its id. What is not root, in tests, has one user for everything.
fn owner(owner: Owner) -> Option<u32> {
    rustix::process::geteuid().is_root().then(|| owner.id())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_file_is_its_owner_s_alone() {
        let root = tempfile::tempdir().unwrap();
        let file = File {
            path: "/system/secrets/etcd/server.key".into(),
            owner: Owner::Etcd,
            contents: config::Secret::new("secret"),
        };
        for _ in 0..2 {
            write(root.path(), &file).unwrap();
        }
        let directory = root.path().join("system/secrets/etcd");
        let status = std::fs::metadata(directory.join("server.key")).unwrap();
        assert_eq!(status.permissions().mode() & 0o777, 0o400);
        assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        if rustix::process::geteuid().is_root() {
            assert_eq!((status.uid(), std::fs::metadata(&directory).unwrap().uid()), (60, 60));
        }
    }
}
