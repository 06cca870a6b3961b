//! The `machine.registries` section.

use crate::{CertificateAndKey, EncodedPem, Secret, schema::section};
use std::collections::BTreeMap;

section! {
    /// Where container images come from.
    Registries {
        /// By registry, `*` for all others: who is asked instead.
        mirrors "mirrors": BTreeMap<String, RegistryMirror> {};
        /// By host of a registry or mirror: how it is spoken to.
        config "config": BTreeMap<String, RegistryConfig> {};
    }
}

section! {
    /// Who is asked instead of a registry.
    RegistryMirror {
        /// Addresses, by preference.
        endpoints "endpoints": Vec<String> { example "[\"http://10.5.0.1:6000\"]" };
        /// The address holds the whole path already.
        override_path "overridePath": Option<bool> { newer true, default "false" };
        /// Do not ask the registry itself when no mirror answers.
        skip_fallback "skipFallback": Option<bool> { newer true, default "false" };
    }
}

impl RegistryMirror {
    /// The addresses without a slash at the end: with and without it, one place is meant.
    pub fn normal_endpoints(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(|url| url.trim_end_matches('/'))
    }
}

section! {
    /// How a registry is spoken to.
    RegistryConfig {
        /// Certificates.
        tls "tls": Option<RegistryTls> {};
        /// Who we are.
        auth "auth": Option<RegistryAuth> {};
    }
}

section! {
    /// Certificates for a registry.
    RegistryTls {
        /// Our own.
        client_identity "clientIdentity": Option<CertificateAndKey> {};
        /// The CA of the registry's.
        ca "ca": EncodedPem {};
        /// Take any certificate.
        insecure_skip_verify "insecureSkipVerify": Option<bool> { default "false" };
    }
}

section! {
    /// Who we are to a registry.
    RegistryAuth {
        /// Name.
        username "username": String { secret true };
        /// Password.
        password "password": Option<Secret> {};
        /// Both, base64 of `name:password`.
        auth "auth": Option<Secret> {};
        /// A token instead.
        identity_token "identityToken": Option<Secret> {};
    }
}
