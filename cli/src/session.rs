//! A connection made from the global flags, and the ways to ask over it.
//!
//! Owns: errors in a user's words, warnings for nodes that failed while others answered, byte streams of several
//! nodes. Does not: print answers (`commands`).

use crate::{expiry, global::Global, output};
use anyhow::{Context as _, Result, anyhow};
use api::{
    client::{self, Client, NodeMessage, Options},
    pki::CertificateFacts,
    proto::common::Data,
    talosconfig::{self, Talosconfig},
    tls::{self, Trust},
};
use std::{env, path::PathBuf};
use tonic::{Request, Response, Status, Streaming};

/// A connection and what the user said about it.
pub(crate) struct Session {
    /// The connection.
    pub(crate) client: Client,
    /// The global flags.
    pub(crate) global: Global,
}

/// Flags of commands that a node in maintenance answers: nobody has a certificate of its CA yet.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Maintenance {
    /// For a node in maintenance: no client certificate, and its own is not checked
    #[arg(short, long)]
    pub(crate) insecure: bool,
    /// With --insecure: the fingerprint that the node prints on its console; more than one with commas
    #[arg(long, value_delimiter = ',', value_name = "FINGERPRINT", requires = "insecure")]
    pub(crate) cert_fingerprint: Vec<String>,
}

/// The file that the flags and the environment name.
pub(crate) fn config_path(global: &Global) -> PathBuf {
    talosconfig::path(global.talosconfig.as_deref(), |name| env::var_os(name))
}

/// Tells when the context's certificate is about to end. An expired one is the connection's error.
fn warn_of_expiry(name: &str, context: &talosconfig::Context) {
    let Ok(Some(identity)) = context.identity() else { return };
    let Ok(facts) = CertificateFacts::from_pem("the client certificate", &identity.certificate) else {
        return;
    };
    if facts.remaining().is_some()
        && let Some(warning) = expiry::warning(name, &facts)
    {
        eprintln!("WARNING: {}", output::shown(&warning.to_string()));
    }
}

impl Session {
    /// Connects as the flags say.
    pub(crate) async fn open(global: &Global) -> Result<Self> {
        let path = config_path(global);
        let config = Talosconfig::load(&path)?;
        let (name, context) =
            config.choose(global.context.as_deref()).with_context(|| format!("use {}", path.display()))?;
        warn_of_expiry(name, context);
        let options = Options { endpoints: global.endpoints.clone(), nodes: global.nodes.clone() };
        let client = Client::connect(context, &options)
            .await
            .with_context(|| format!("context `{name}` of {}", path.display()))?;
        Ok(Self { client, global: global.clone() })
    }

    /// Connects to a node in maintenance if the flags say so, else as usual.
    pub(crate) async fn open_maybe_insecure(global: &Global, flags: &Maintenance) -> Result<Self> {
        if !flags.insecure {
            return Self::open(global).await;
        }
        // The node is the endpoint; without a cluster nobody forwards.
        let given = if global.nodes.is_empty() { &global.endpoints } else { &global.nodes };
        let [node] = given.as_slice() else {
            return Err(anyhow!(
                "--insecure is for one node, but {} are given; choose one with -n",
                given.len()
            ));
        };
        let trust = match flags.cert_fingerprint.as_slice() {
            [] => Trust::Anyone,
            known => Trust::Fingerprints(known),
        };
        let config = tls::client(trust, None)?;
        let client = Client::connect_with(config, std::slice::from_ref(node), vec![]).await?;
        Ok(Self { client, global: global.clone() })
    }

    /// A call to the chosen nodes, whose answers say which node they are from.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        client::to_nodes(message, self.client.nodes())
    }

    /// Name of the endpoint in NODE columns.
    pub(crate) fn endpoint(&self) -> &str {
        &self.client.endpoint().host
    }

    /// The nodes to ask one by one: `None` is the endpoint itself.
    pub(crate) fn each_node(&self) -> Vec<Option<String>> {
        let nodes = self.client.nodes();
        if nodes.is_empty() { vec![None] } else { nodes.iter().cloned().map(Some).collect() }
    }

    /// The name of one of [`Session::each_node`].
    pub(crate) fn name_of<'a>(&'a self, node: Option<&'a str>) -> &'a str {
        node.unwrap_or_else(|| self.endpoint())
    }

    /// The one node that a command is for which can not serve several.
    pub(crate) fn single_node(&self, command: &str) -> Result<Option<String>> {
        match self.client.nodes() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => {
                Err(anyhow!("{command} is for one node, but {} are given; choose one with -n", several.len()))
            }
        }
    }

    /// A failed call in words.
    pub(crate) fn error(&self, status: &Status) -> anyhow::Error {
        anyhow!("{}", self.client.explain(status))
    }

    /// The answers by node. Nodes that failed are named on stderr; if all did, that is the error.
    pub(crate) fn answers<R, T: NodeMessage>(
        &self,
        response: Result<Response<R>, Status>,
        messages: impl FnOnce(R) -> Vec<T>,
    ) -> Result<Vec<(String, T)>> {
        let response = response.map_err(|status| self.error(&status))?;
        let reply = client::sort(messages(response.into_inner()), self.endpoint());
        let reply = reply.or_error().map_err(|status| self.error(&status))?;
        for error in &reply.errors {
            self.global.part_failed.warn(error);
        }
        if reply.answers.is_empty() {
            return Err(anyhow!("{} sent an empty answer", self.endpoint()));
        }
        Ok(reply.answers)
    }

    /// Reads a stream of messages to its end. A node's error ends the command once all nodes have ended.
    pub(crate) async fn each<T: NodeMessage>(
        &self,
        stream: Result<Response<Streaming<T>>, Status>,
        mut handle: impl FnMut(&str, T) -> Result<()>,
    ) -> Result<()> {
        let mut stream = stream.map_err(|status| self.error(&status))?.into_inner();
        let mut failed = Vec::new();
        while let Some(message) = stream.message().await.map_err(|status| self.error(&status))? {
            if let Some(error) = client::node_error(&message, self.endpoint()) {
                failed.push(error.to_string());
                continue;
            }
            let node = message.metadata().map(|m| m.hostname.clone());
            handle(node.as_deref().unwrap_or_else(|| self.endpoint()), message)?;
        }
        if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("\n"))) }
    }

    /// As [`Session::each`], with a handler that may have to wait before it takes more.
    pub(crate) async fn each_slowly<T: NodeMessage>(
        &self,
        stream: Result<Response<Streaming<T>>, Status>,
        mut handle: impl AsyncFnMut(T) -> Result<()>,
    ) -> Result<()> {
        let mut stream = stream.map_err(|status| self.error(&status))?.into_inner();
        let mut failed = Vec::new();
        while let Some(message) = stream.message().await.map_err(|status| self.error(&status))? {
            match client::node_error(&message, self.endpoint()) {
                Some(error) => failed.push(error.to_string()),
                None => handle(message).await?,
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(anyhow!("{}", failed.join("\n"))) }
    }

    /// Prints a stream of bytes as it comes.
    pub(crate) async fn copy_to_stdout(
        &self,
        stream: Result<Response<Streaming<Data>>, Status>,
    ) -> Result<()> {
        self.each(stream, |_, data| Ok(output::print(&data.bytes)?)).await
    }
}
