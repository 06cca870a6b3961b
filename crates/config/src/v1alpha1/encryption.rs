//! The `machine.systemDiskEncryption` section, and what volume documents share with it.

use crate::{
    Secret,
    schema::{choice, section},
};

section! {
    /// Encryption of the system's partitions.
    SystemDiskEncryption {
        /// The partition that holds configuration and keys.
        state "state": Option<Encryption> {};
        /// The partition that holds containers and their data.
        ephemeral "ephemeral": Option<Encryption> {};
    }
}

section! {
    /// Encryption of one volume.
    Encryption {
        /// The format.
        provider "provider": Option<EncryptionProvider> { default "luks2" };
        /// The keys, each with its own slot.
        keys "keys": Vec<EncryptionKey> {};
        /// The cipher.
        cipher "cipher": Option<Cipher> { default "aes-xts-plain64" };
        /// Bits of the key.
        key_size "keySize": u32 { newer true, example "512" };
        /// Bytes of a sector.
        block_size "blockSize": u32 { newer true, example "4096" };
        /// Switches for speed.
        options "options": Vec<EncryptionOption> { newer true };
        /// Tell the disk which blocks hold nothing.
        allow_discards "allowDiscards": Option<bool> { newer true, later "discards of encrypted volumes" };
    }
}

choice! {
    /// Formats of an encrypted volume.
    EncryptionProvider {
        /// LUKS, version 2.
        Luks2 "luks2";
    }
}

choice! {
    /// Ciphers.
    Cipher {
        /// AES in XTS mode.
        AesXts "aes-xts-plain64";
        /// Adiantum with 12 rounds, for processors without AES.
        Adiantum12 "xchacha12,aes-adiantum-plain64";
        /// Adiantum with 20 rounds.
        Adiantum20 "xchacha20,aes-adiantum-plain64";
    }
}

choice! {
    /// Switches for speed.
    EncryptionOption {
        /// Decrypt in the reading thread.
        NoReadWorkqueue "no_read_workqueue";
        /// Encrypt in the writing thread.
        NoWriteWorkqueue "no_write_workqueue";
        /// Stay on the processor of the request.
        SameCpuCrypt "same_cpu_crypt";
    }
}

section! {
    /// A key: its slot and where it comes from.
    EncryptionKey {
        /// A passphrase in this document.
        static_key "static": Option<StaticKey> {};
        /// Derived from the machine's UUID and the volume's label.
        node_id "nodeID": Option<NodeIdKey> {};
        /// Kept by a server.
        kms "kms": Option<KmsKey> { newer true };
        /// Sealed by the TPM.
        tpm "tpm": Option<TpmKey> { newer true };
        /// Random, and encrypted to a person's public key. Billet's own.
        recovery "recovery": Option<RecoveryKey> { newer true };
        /// LUKS2's slot, 0 to 31.
        slot "slot": u8 { example "1" };
        /// Make the key depend on the STATE volume. Without it: yes for `tpm` and `kms` keys of other volumes where STATE is encrypted.
        lock_to_state "lockToState": Option<bool> { newer true };
    }
}

section! {
    /// A passphrase in this document.
    StaticKey {
        /// The passphrase.
        passphrase "passphrase": Secret {};
    }
}

section! {
    /// Derived from the machine's UUID and the volume's label.
    NodeIdKey {}
}

section! {
    /// Kept by a server.
    KmsKey {
        /// Where it answers: `https://`, or `grpc://` without encryption.
        endpoint "endpoint": String { newer true, example "https://kms.example.org:4443" };
    }
}

section! {
    /// Sealed by the TPM.
    TpmKey {
        /// Refuse to enrol where Secure Boot is off.
        check_secureboot_status_on_enroll "checkSecurebootStatusOnEnroll": Option<bool> { newer true };
        /// What the key is bound to.
        options "options": Option<TpmOptions> { newer true };
    }
}

section! {
    /// What a TPM's key is bound to.
    TpmOptions {
        /// Registers, 0 to 23.
        pcrs "pcrs": Option<Vec<u8>> { newer true, default "[7]", example "[7]" };
    }
}

section! {
    /// A random key that the node encrypts to a person's public key: for the day on which no other key works.
    RecoveryKey {
        /// Who can decrypt it: public keys of age, one of which is enough.
        recipients "recipients": Vec<String> { newer true, example "[age1e7cahvd0e6rexnshazk8n02yrz04k74l8ugxwwfvvfnz72aufspqf4h8cd]" };
    }
}
