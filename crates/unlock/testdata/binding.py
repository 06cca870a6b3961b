#!/usr/bin/env python3
"""A key bound to a volume, as docs/formats/luks2.md ("Sealed keys") says, by Python's own HMAC:
python3 binding.py > binding.txt"""

import base64
import hashlib
import hmac

VOLUME = "EPHEMERAL"
SALT = "salt of STATE"


def mac(key: bytes, label: str) -> bytes:
    return hmac.new(key, label.encode() + b"\0" + VOLUME.encode(), hashlib.sha256).digest()


random = bytes(range(0x40, 0x60))
sealed = random[:24] + mac(random[:24], "billet: volume of a sealed key")[:8]
passphrase = base64.b64encode(mac(sealed, "billet: passphrase of a volume")).decode()
for name, value in [
    ("volume", VOLUME),
    ("salt", SALT),
    ("random", random.hex()),
    ("sealed", sealed.hex()),
    ("passphrase", passphrase),
    ("locked", passphrase + SALT),
    ("unbound", base64.b64encode(sealed).decode()),
]:
    print(name, value)
