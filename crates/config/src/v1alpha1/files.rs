//! Entries of `machine.files`.

use crate::schema::{FileMode, choice, section};

section! {
    /// A file to write at boot.
    File {
        /// Its text.
        content "content": String { secret true, example "\"[metrics]\"" };
        /// Its permissions.
        permissions "permissions": Option<FileMode> { default "0644", example "0644" };
        /// Where it is.
        path "path": String { example "/var/cri/conf.d/metrics.toml" };
        /// How it is written.
        op "op": Option<FileOp> { default "create", example "create" };
    }
}

choice! {
    /// How a file is written.
    FileOp {
        /// A new file, below /var only.
        Create "create";
        /// Behind what the file holds already.
        Append "append";
        /// Instead of what the file holds.
        Overwrite "overwrite";
    }
}
