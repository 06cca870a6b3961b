"""What crates/tpm derives and wraps, by another implementation: Python's hmac and hashlib, and OpenSSL by `cryptography`.

Written from the TPM 2.0 library specification, revision 1.59, part 1: 11.4.10.2 (KDFa), 11.4.10.3 (KDFe), 23.3
(duplication), C.6.4. Run: python3 duplicate.py > duplicate.txt
"""

import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def kdf_a(key, label, u, v, bits):
    out, counter = b"", 0
    while len(out) * 8 < bits:
        counter += 1
        message = struct.pack(">I", counter) + label + b"\0" + u + v + struct.pack(">I", bits)
        out += hmac.new(key, message, hashlib.sha256).digest()
    return out[: bits // 8]


def kdf_e(z, label, u, v, bits):
    out, counter = b"", 0
    while len(out) * 8 < bits:
        counter += 1
        out += hashlib.sha256(struct.pack(">I", counter) + z + label + b"\0" + u + v).digest()
    return out[: bits // 8]


def cfb(key, data):
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    out, feedback = b"", bytes(16)
    for at in range(0, len(data), 16):
        stream = block.update(feedback)
        feedback = bytes(a ^ b for a, b in zip(data[at : at + 16], stream))
        out += feedback
    return out


def sized(data):
    return struct.pack(">H", len(data)) + data


def key(number):
    return ec.derive_private_key(int.from_bytes(bytes([number]) * 32, "big"), ec.SECP256R1())


def point(private):
    numbers = private.public_key().public_numbers()
    return numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")


def show(name, value):
    print(name, value.hex())


# The endorsement key: template L-2 of the TCG EK Credential Profile.
device = key(0x11)
device_x, device_y = point(device)
policy = hashlib.sha256(bytes(32) + struct.pack(">II", 0x151, 0x4000000B)).digest()
policy = hashlib.sha256(policy).digest()
attributes = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 16) | (1 << 17)
area = struct.pack(">HHI", 0x23, 0xB, attributes) + sized(policy)
area += struct.pack(">HHHHHH", 6, 128, 0x43, 0x10, 3, 0x10) + sized(device_x) + sized(device_y)
show("device", area)
show("digest", hashlib.sha256(area).digest())

show("kdf_a", kdf_a(b"\x01" * 32, b"INTEGRITY", b"", b"", 256))
show("kdf_a_128", kdf_a(b"\x01" * 32, b"STORAGE", b"name", b"", 128))
show("kdf_e", kdf_e(b"\x02" * 32, b"DUPLICATE", b"ours", b"theirs", 256))

# Chance gives 0x22 for the key of one use, then 0x33 for the object's salt.
ours = key(0x22)
ours_x, ours_y = point(ours)
salt, secret = b"\x33" * 32, b"the bytes that nobody may see..."
z = ours.exchange(ec.ECDH(), device.public_key())
seed = kdf_e(z, b"DUPLICATE", ours_x, device_x, 256)
unique = hashlib.sha256(salt + secret).digest()
public = struct.pack(">HHI", 8, 0xB, (1 << 6) | (1 << 10)) + sized(b"") + struct.pack(">H", 0x10) + sized(unique)
name = b"\x00\x0b" + hashlib.sha256(public).digest()
sensitive = sized(struct.pack(">H", 8) + sized(b"") + sized(salt) + sized(secret))
wrapped = cfb(kdf_a(seed, b"STORAGE", name, b"", 128), sensitive)
proof = hmac.new(kdf_a(seed, b"INTEGRITY", b"", b"", 256), wrapped + name, hashlib.sha256).digest()
show("public", public)
show("private", sized(proof) + wrapped)
show("seed", sized(ours_x) + sized(ours_y))
