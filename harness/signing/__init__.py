"""SSH signatures of Records: `ssh-keygen -Y` signs the bytes of the file. The signature is `RECORD.sig` beside it."""

from __future__ import annotations

from tritmark.harness.signing.sign import sign
from tritmark.harness.signing.ssh import NAMESPACE, signature_path
from tritmark.harness.signing.trust import SignatureFault, SignatureFinding, TrustedKeys

__all__ = ["NAMESPACE", "SignatureFault", "SignatureFinding", "TrustedKeys", "sign", "signature_path"]
