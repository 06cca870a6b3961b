//! A kubeconfig as data, and one cluster's entries brought into another file.
//!
//! Owns: which entries may be replaced. Keys that are not known here are kept.
//! Source: `kubectl config view --raw` of a merged file; docs/users/kubernetes.md.

use anyhow::{Result, bail};
use config::Secret;
use serde_json::{Map, Value, json};

/// The lists of a kubeconfig and the key of what an entry holds.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];
const CURRENT: &str = "current-context";

/// It holds keys, hence no `Debug`.
pub(super) struct Kubeconfig(Map<String, Value>);

impl Kubeconfig {
    /// Reads a file; an empty one is a kubeconfig without entries.
    pub(super) fn parse(text: &Secret) -> Result<Self> {
        let text = text.expose_secret();
        // What a parser says of a broken line may quote it, and with it a key.
        let Ok(value) = serde_saphyr::from_str::<Value>(text) else { bail!("it is not YAML") };
        let mut root = match value {
            Value::Null => Map::new(),
            Value::Object(root) => root,
            _ => bail!("it is no kubeconfig: the document is not a mapping"),
        };
        root.entry("apiVersion").or_insert_with(|| json!("v1"));
        root.entry("kind").or_insert_with(|| json!("Config"));
        if root["kind"] != "Config" {
            bail!("it is no kubeconfig: its kind is {}", root["kind"]);
        }
        for (list, _) in LISTS {
            let value = root.entry(list).or_insert(Value::Null);
            if value.is_null() {
                *value = json!([]);
            }
            if !value.is_array() {
                bail!("it is no kubeconfig: `{list}` is no list");
            }
        }
        Ok(Self(root))
    }

    /// As a file.
    pub(super) fn text(&self) -> Result<Secret> {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        Ok(Secret::new(serde_saphyr::to_string_with_options(&self.0, options)?))
    }

    /// Renames the current context.
    pub(super) fn rename_context(&mut self, name: &str) {
        let current = self.current().to_owned();
        if let Some(entry) = self.entry_mut("contexts", &current) {
            entry["name"] = json!(name);
        }
        self.0.insert(CURRENT.to_owned(), json!(name));
    }

    /// Takes over every entry, and the current context. Entries of the same cluster are replaced; entries of another
    /// with the same name only if `force` is set.
    pub(super) fn merge(&mut self, fresh: &Self, force: bool) -> Result<()> {
        if !force && let Some(taken) = self.conflict(fresh) {
            bail!(
                "{taken} is of another cluster; --force overwrites it, --force-context-name NAME gives the context another name, a file name as argument writes another file"
            );
        }
        for (list, _) in LISTS {
            for entry in fresh.list(list) {
                let name = name(entry);
                match self.entry_mut(list, name) {
                    Some(old) => *old = entry.clone(),
                    None => self.0[list].as_array_mut().into_iter().for_each(|all| all.push(entry.clone())),
                }
            }
        }
        self.0.insert(CURRENT.to_owned(), json!(fresh.current()));
        Ok(())
    }

    /// Removes the clusters of another kubeconfig with the contexts that are for them and the users of these.
    pub(super) fn remove(&mut self, gone: &Self) {
        let is_gone =
            |entry: &Value| gone.list("clusters").iter().any(|cluster| is_same_cluster(entry, cluster));
        let clusters = self.names("clusters", is_gone);
        let is_for_them = |entry: &Value| has(&clusters, &entry["context"]["cluster"]);
        let contexts = self.names("contexts", is_for_them);
        let users: Vec<String> = self
            .list("contexts")
            .iter()
            .filter(|entry| is_for_them(entry))
            .filter_map(|entry| entry["context"]["user"].as_str().map(str::to_owned))
            .collect();
        if has(&contexts, &json!(self.current())) {
            self.0.insert(CURRENT.to_owned(), json!(""));
        }
        for (list, names) in [("clusters", clusters), ("contexts", contexts), ("users", users)] {
            if let Some(entries) = self.0.get_mut(list).and_then(Value::as_array_mut) {
                entries.retain(|entry| !has(&names, &entry["name"]));
            }
        }
    }

    fn names(&self, list: &str, which: impl Fn(&Value) -> bool) -> Vec<String> {
        self.list(list).iter().filter(|entry| which(entry)).map(|entry| name(entry).to_owned()).collect()
    }

    /// The first entry that a merge would take from another cluster.
    fn conflict(&self, fresh: &Self) -> Option<String> {
        let other = |cluster: &&Value| {
            self.entry("clusters", name(cluster)).is_some_and(|old| !is_same_cluster(old, cluster))
        };
        if let Some(cluster) = fresh.list("clusters").iter().find(other) {
            return Some(format!("the cluster `{}`", name(cluster)));
        }
        let of_another = |context: &&Value| {
            self.entry("contexts", name(context))
                .is_some_and(|old| old["context"]["cluster"] != context["context"]["cluster"])
        };
        let context = fresh.list("contexts").iter().find(of_another)?;
        Some(format!("the context `{}`", name(context)))
    }

    fn current(&self) -> &str {
        self.0.get(CURRENT).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(&self, list: &str) -> &[Value] {
        self.0.get(list).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn entry(&self, list: &str, wanted: &str) -> Option<&Value> {
        self.list(list).iter().find(|entry| name(entry) == wanted)
    }

    fn entry_mut(&mut self, list: &str, wanted: &str) -> Option<&mut Value> {
        self.0.get_mut(list)?.as_array_mut()?.iter_mut().find(|entry| name(entry) == wanted)
    }
}

fn name(entry: &Value) -> &str {
    entry.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn has(names: &[String], value: &Value) -> bool {
    value.as_str().is_some_and(|name| names.iter().any(|known| known == name))
}

/// The authority says which cluster it is; the endpoint may have moved.
fn is_same_cluster(one: &Value, other: &Value) -> bool {
    let authority = |entry: &Value| entry["cluster"]["certificate-authority-data"].clone();
    !authority(one).is_null() && authority(one) == authority(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, server: &str, authority: &str, key: &str) -> Kubeconfig {
        let user = format!("admin@{cluster}");
        let value = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": user,
            "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"client-key-data": key}}],
            "contexts": [{"name": user, "context": {"cluster": cluster, "user": user}}],
        });
        Kubeconfig::parse(&Secret::new(value.to_string())).ok().unwrap()
    }

    fn value(config: &Kubeconfig) -> Value {
        serde_saphyr::from_str(config.text().ok().unwrap().expose_secret()).unwrap()
    }

    #[test]
    fn a_removed_cluster_takes_its_context_and_user_with_it() {
        let mut all = kubeconfig("other", "https://10.0.0.3:6443", "QQ==", "one");
        let own = kubeconfig("demo", "https://10.5.0.2:6443", "Qg==", "two");
        all.merge(&own, false).unwrap();
        all.remove(&own);
        let mut left = kubeconfig("other", "https://10.0.0.3:6443", "QQ==", "one");
        left.0.insert(CURRENT.to_owned(), json!(""));
        assert_eq!(value(&all), value(&left));
        // One of the same name with another authority is another cluster.
        all.remove(&kubeconfig("other", "https://10.0.0.3:6443", "Qw==", "one"));
        assert_eq!(value(&all), value(&left));
    }

    #[test]
    fn other_clusters_and_unknown_keys_stay() {
        let text =
            "preferences: {colors: true}\nclusters: [{name: x, cluster: {server: s, extra: 1}}]\nusers:\n";
        let mut old = Kubeconfig::parse(&Secret::new(text)).ok().unwrap();
        old.merge(&kubeconfig("demo", "https://10.0.0.3:6443", "QQ==", "one"), false).unwrap();
        let merged = value(&old);
        assert_eq!(merged["preferences"]["colors"], true);
        assert_eq!(merged["clusters"][0]["cluster"]["extra"], 1);
        assert_eq!(merged["clusters"][1]["name"], "demo");
        assert_eq!(merged["users"][0]["user"]["client-key-data"], "one");
        assert_eq!(merged["current-context"], "admin@demo");
    }

    #[test]
    fn the_same_cluster_is_renewed_without_a_question() {
        let mut old = kubeconfig("demo", "https://10.0.0.3:6443", "QQ==", "one");
        old.merge(&kubeconfig("demo", "https://10.0.0.4:6443", "QQ==", "two"), false).unwrap();
        let merged = value(&old);
        assert_eq!(merged["users"].as_array().unwrap().len(), 1);
        assert_eq!(merged["users"][0]["user"]["client-key-data"], "two");
        assert_eq!(merged["clusters"][0]["cluster"]["server"], "https://10.0.0.4:6443");
    }

    #[test]
    fn another_cluster_of_the_name_is_kept_unless_told() {
        let mut old = kubeconfig("demo", "https://10.0.0.3:6443", "QQ==", "one");
        let fresh = kubeconfig("demo", "https://10.0.0.3:6443", "Qg==", "two");
        let error = old.merge(&fresh, false).unwrap_err().to_string();
        assert!(error.starts_with("the cluster `demo` is of another cluster; --force overwrites"), "{error}");
        assert_eq!(value(&old)["users"][0]["user"]["client-key-data"], "one");
        old.merge(&fresh, true).unwrap();
        assert_eq!(value(&old)["users"][0]["user"]["client-key-data"], "two");
        let mut fresh = kubeconfig("next", "https://10.0.0.9:6443", "Qw==", "three");
        fresh.rename_context("admin@demo");
        let error = old.merge(&fresh, false).unwrap_err().to_string();
        assert!(error.starts_with("the context `admin@demo` is of another cluster"), "{error}");
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused_without_quoting_it() {
        for (text, said) in [
            ("a: [hunter2", "it is not YAML"),
            ("- hunter2", "it is no kubeconfig: the document is not a mapping"),
            ("kind: Pod", "it is no kubeconfig: its kind is \"Pod\""),
            ("users: {a: hunter2}", "it is no kubeconfig: `users` is no list"),
        ] {
            assert_eq!(Kubeconfig::parse(&Secret::new(text)).err().unwrap().to_string(), said);
        }
        assert!(Kubeconfig::parse(&Secret::new("")).is_ok());
    }
}
