//! The fault injector of test images: does to a node what a test asks for over TCP.
//!
//! Owns: one JSON request a line on port 50099, one JSON answer a line; a request that fails is answered with
//! `{"error": …}`.
//! Does not: exist in production images (the layer `test-agent` carries it); authenticate anybody.
//! Order: each connection has a thread; `flood` and `fork-and-die` run in children that are this same program.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

mod block;
mod children;
mod files;
mod processes;
mod request;

use request::Request;

/// Where tests reach the agent.
const ADDRESS: &str = "[::]:50099";

/// The same for a kernel without IPv6.
const ADDRESS_V4: &str = "0.0.0.0:50099";

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match children::run(&words) {
        Some(code) => code,
        None => serve(),
    }
}

fn serve() -> std::process::ExitCode {
    let listener = match TcpListener::bind(ADDRESS).or_else(|_| TcpListener::bind(ADDRESS_V4)) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("test-agent: listen on {ADDRESS}: {error}");
            return std::process::ExitCode::FAILURE;
        }
    };
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            if let Err(error) = converse(stream) {
                eprintln!("test-agent: connection: {error}");
            }
        });
    }
    std::process::ExitCode::SUCCESS
}

fn converse(stream: TcpStream) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let mut answer = answer(&line?).to_string();
        answer.push('\n');
        out.write_all(answer.as_bytes())?;
    }
    Ok(())
}

fn answer(line: &str) -> Value {
    let done =
        serde_json::from_str::<Request>(line).map_err(|error| error.to_string()).and_then(request::run);
    done.unwrap_or_else(|error| json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_request_is_answered() {
        assert!(answer("{").get("error").is_some());
        assert!(answer("{\"op\":\"dance\"}")["error"].as_str().unwrap().contains("dance"));
    }

    #[test]
    fn a_request_is_answered_over_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        std::thread::spawn(move || converse(server));
        client.write_all(b"{\"op\":\"read\",\"path\":\"/proc/version\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        assert!(line.contains("Linux version"), "{line}");
    }
}
