//! Documents for registries, and for the checks of images.

use crate::{Secret, schema::section};

section! {
    /// Who is asked instead of a registry; its name is the registry, `*` for all others.
    RegistryMirrorConfig {
        /// The registry.
        name "name": String { newer true, example "registry.example.org" };
        /// Addresses, by preference.
        endpoints "endpoints": Vec<MirrorEndpoint> { newer true };
        /// Do not ask the registry itself when no mirror answers.
        skip_fallback "skipFallback": Option<bool> { newer true };
    }
}

section! {
    /// Address of a mirror.
    MirrorEndpoint {
        /// The address.
        url "url": String { newer true, example "\"https://mirror.example.org:5000\"" };
        /// It holds the whole path already.
        override_path "overridePath": Option<bool> { newer true };
    }
}

section! {
    /// Who we are to a registry; its name is the registry.
    RegistryAuthConfig {
        /// The registry.
        name "name": String { newer true, example "registry.example.org" };
        /// Name.
        username "username": String { newer true, secret true };
        /// Password.
        password "password": Option<Secret> { newer true };
        /// Both, base64 of `name:password`.
        auth "auth": Option<Secret> { newer true };
        /// A token instead.
        identity_token "identityToken": Option<Secret> { newer true };
    }
}

section! {
    /// Certificates for a registry; its name is the registry.
    RegistryTLSConfig {
        /// The registry.
        name "name": String { newer true, example "registry.example.org" };
        /// Our own.
        client_identity "clientIdentity": Option<ClientIdentity> { newer true };
        /// PEM of the CA of the registry's.
        ca "ca": String { newer true, example "\"-----BEGIN CERTIFICATE-----\"" };
        /// Take any certificate.
        insecure_skip_verify "insecureSkipVerify": Option<bool> { newer true };
    }
}

section! {
    /// A certificate and its key, as PEM text.
    ClientIdentity {
        /// The certificate.
        cert "cert": String { newer true };
        /// The key.
        key "key": Secret { newer true };
    }
}

section! {
    /// Which images must be signed, and by whom; the first rule that fits counts. It holds for what the node fetches for
    /// itself and for `image pull`.
    ImageVerificationConfig {
        /// The rules.
        rules "rules": Vec<VerificationRule> { newer true };
    }
}

section! {
    /// A rule on images.
    VerificationRule {
        /// The images; `*` stands for anything.
        image "image": String { newer true, example "\"registry.example.org/*\"" };
        /// Leave these images unchecked.
        skip "skip": Option<bool> { newer true };
        /// Refuse these images.
        deny "deny": Option<bool> { newer true };
        /// These images must be signed; said by `keyless` and `publicKey` too.
        verify "verify": Option<bool> { newer true };
        /// Signed with a short-lived key; cannot be checked yet, so such images are refused.
        keyless "keyless": Option<KeylessSigner> { newer true };
        /// Signed with this key.
        public_key "publicKey": Option<PublicKeySigner> { newer true };
    }
}

section! {
    /// One who signs with short-lived keys.
    KeylessSigner {
        /// Who says who it is.
        issuer "issuer": String { newer true, later "checking keyless signatures", example "https://accounts.example.org" };
        /// Who it is.
        subject "subject": String { newer true, later "checking keyless signatures", example "signer@example.org" };
        /// Who it is, as an expression.
        subject_regex "subjectRegex": String { newer true, later "checking keyless signatures" };
    }
}

section! {
    /// One who signs with a fixed key.
    PublicKeySigner {
        /// PEM of the key, alone or in a certificate.
        certificate "certificate": String { newer true, example "\"-----BEGIN PUBLIC KEY-----\"" };
    }
}
