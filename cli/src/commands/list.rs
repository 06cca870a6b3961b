//! `list`: the files of a directory.

use crate::{
    output::{self, Cell, Format, Table, bytes_si, go_duration, local_time},
    session::Session,
};
use anyhow::Result;
use api::{
    file_mode,
    proto::machine::{FileInfo, ListRequest, list_request::Type},
};
use clap::ValueEnum;
use jiff::{Timestamp, tz::TimeZone};
use std::time::Duration;

/// Extended attribute of the LABEL column.
const LABEL: &str = "security.selinux";

#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// Directory or file
    #[arg(default_value = "/")]
    path: String,
    /// Mode, owner, size and time too
    #[arg(short, long)]
    long: bool,
    /// Directories below too
    #[arg(short, long)]
    recurse: bool,
    /// Sizes and times for people
    #[arg(short = 'H', long)]
    humanize: bool,
    /// How many directories deep; 0 for no limit with --recurse
    #[arg(short, long, default_value_t = 0)]
    depth: i32,
    /// Only files (f), directories (d), symbolic links (l)
    #[arg(short = 't', long = "type", value_enum, value_delimiter = ',')]
    types: Vec<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    #[value(name = "f", alias = "regular", alias = "file")]
    File,
    #[value(name = "d", alias = "directory", alias = "dir")]
    Directory,
    #[value(name = "l", alias = "L", alias = "symlink", alias = "link")]
    Link,
}

pub(crate) async fn run(session: &Session, flags: Flags) -> Result<()> {
    let stream = session.client.machine().list(session.request(request(&flags))).await;
    let mut files = Vec::new();
    let mut unreadable = Vec::new();
    let result = session
        .each(stream, |node, file| {
            if file.error.is_empty() {
                files.push((node.to_owned(), file));
            } else {
                unreadable.push(format!("{node}: {}: {}", file.name, file.error));
            }
            Ok(())
        })
        .await;
    print(session, &flags, &files)?;
    for line in unreadable {
        output::note(&format!("WARNING: {line}"));
    }
    result
}

fn request(flags: &Flags) -> ListRequest {
    let types = flags.types.iter().map(|kind| match kind {
        Kind::File => Type::Regular,
        Kind::Directory => Type::Directory,
        Kind::Link => Type::Symlink,
    });
    ListRequest {
        root: flags.path.clone(),
        recurse: flags.recurse || flags.depth > 1,
        recursion_depth: flags.depth,
        types: types.map(i32::from).collect(),
        report_xattrs: flags.long,
    }
}

fn print(session: &Session, flags: &Flags, files: &[(String, FileInfo)]) -> Result<()> {
    let table = if flags.long { long(files, flags.humanize, &Clock::system()) } else { short(files) };
    let several = session.client.nodes().len() > 1;
    if flags.long || several || session.global.output != Format::Table {
        return output::print_table(&table, session.global.output);
    }
    Ok(output::print(files.iter().map(|(_, file)| format!("{}\n", file.relative_name)).collect::<String>())?)
}

fn short(files: &[(String, FileInfo)]) -> Table {
    let mut table = Table::new(&[("NODE", "node"), ("NAME", "name")]);
    for (node, file) in files {
        table.push(vec![node.as_str().into(), file.relative_name.as_str().into()]);
    }
    table
}

/// What times are compared with and shown in.
struct Clock {
    zone: TimeZone,
    now_seconds: i64,
}

impl Clock {
    fn system() -> Self {
        Self { zone: TimeZone::system(), now_seconds: Timestamp::now().as_second() }
    }
}

fn long(files: &[(String, FileInfo)], humanize: bool, clock: &Clock) -> Table {
    let mut table = Table::new(&[
        ("NODE", "node"),
        ("MODE", "mode"),
        ("UID", "uid"),
        ("GID", "gid"),
        ("SIZE(B)", "size"),
        ("LASTMOD", "modified"),
        ("LABEL", "label"),
        ("NAME", "name"),
    ]);
    for (node, file) in files {
        let size = u64::try_from(file.size).unwrap_or(0);
        let arrow = if file.link.is_empty() { String::new() } else { format!(" -> {}", file.link) };
        table.push(vec![
            node.as_str().into(),
            file_mode::text(file.mode).into(),
            Cell::new(file.uid.to_string(), file.uid),
            Cell::new(file.gid.to_string(), file.gid),
            Cell::new(if humanize { bytes_si(size) } else { size.to_string() }, size),
            Cell::new(modified(file.modified, humanize, clock), file.modified),
            label(file).into(),
            format!("{}{arrow}", file.relative_name).into(),
        ]);
    }
    table
}

fn modified(seconds: i64, humanize: bool, clock: &Clock) -> String {
    if !humanize {
        return local_time(seconds, &clock.zone);
    }
    let age = u64::try_from(clock.now_seconds.saturating_sub(seconds)).unwrap_or(0);
    match age / 86_400 {
        0 => format!("{} ago", go_duration(Duration::from_secs(age))),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

fn label(file: &FileInfo) -> String {
    let found = file.xattrs.iter().find(|x| x.name == LABEL);
    found.map_or_else(String::new, |x| String::from_utf8_lossy(&x.data).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(String, FileInfo)> {
        let file = |name: &str, st_mode, size, link: &str| FileInfo {
            relative_name: name.into(),
            mode: file_mode::from_st_mode(st_mode),
            size,
            link: link.into(),
            modified: 86_400,
            uid: 50,
            ..Default::default()
        };
        vec![("n".into(), file(".", 0o040_755, 4096, "")), ("n".into(), file("bin", 0o120_777, 7, "usr/bin"))]
    }

    fn clock() -> Clock {
        Clock { zone: TimeZone::UTC, now_seconds: 86_400 * 4 }
    }

    #[test]
    fn long_rows() {
        assert_eq!(
            long(&files(), false, &clock()).to_string(),
            "NODE   MODE         UID   GID   SIZE(B)   LASTMOD               LABEL   NAME\n\
             n      drwxr-xr-x   50    0     4096      Jan 2 1970 00:00:00           .\n\
             n      Lrwxrwxrwx   50    0     7         Jan 2 1970 00:00:00           bin -> usr/bin\n"
        );
    }

    #[test]
    fn for_people() {
        let text = long(&files(), true, &clock()).to_string();
        assert!(text.contains("4.1 kB") && text.contains("3 days ago"), "{text}");
    }

    #[test]
    fn depth_means_recursion() {
        let flags = Flags {
            path: "/".into(),
            long: false,
            recurse: false,
            humanize: false,
            depth: 2,
            types: vec![Kind::Link],
        };
        let request = request(&flags);
        assert!(request.recurse && request.recursion_depth == 2 && request.types == [2]);
    }
}
