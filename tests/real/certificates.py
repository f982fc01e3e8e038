"""An authority and certificates, made by openssl."""

import shutil
import ssl
import subprocess

import pytest

EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """Signs certificates for this machine; all files are in `folder`."""

    def __init__(self, folder, name="ca"):
        if not shutil.which("openssl"):
            pytest.fail("no openssl: apt-get install openssl")
        self.folder, self.ca, self.key = folder, folder / f"{name}.pem", folder / f"{name}.key"
        self.run("req", "-x509", *EC, "-days", "30", "-keyout", self.key, "-out", self.ca, "-subj", f"/CN={name}",
                 "-addext", "basicConstraints=critical,CA:TRUE")

    def run(self, *command):
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)

    def issue(self, name, serial=None, days=10):
        """Makes NAME.pem and NAME.key, for localhost and 127.0.0.1."""
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        self.run("req", *EC, "-keyout", key, "-out", request, "-subj", f"/CN={name}",
                 "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        number = ["-set_serial", str(serial)] if serial else ["-CAcreateserial"]
        self.run("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key, "-days", days, *number,
                 "-copy_extensions", "copy", "-out", certificate)
        return certificate, key

    def context(self, *alpn, own=None):
        """What a client trusts and shows."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if own:
            context.load_cert_chain(*map(str, own))
        return context

    def server_context(self, name, *alpn):
        """What a server shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*(str(self.folder / f"{name}.{end}") for end in ("pem", "key")))
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


class Secret:
    """A mounted Secret as Kubernetes swaps it: files are links into `..data`, a link to a folder that is replaced by a rename."""

    FILES = ("tls.crt", "tls.key")

    def __init__(self, folder):
        self.folder, self.version = folder, 0
        folder.mkdir()
        for name in self.FILES:
            (folder / name).symlink_to(f"..data/{name}")

    def write(self, certificate, key):
        self.version += 1
        data = self.folder / f"..2026_{self.version}"
        data.mkdir()
        for name, source in zip(self.FILES, (certificate, key)):
            shutil.copy(source, data / name)
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.rename(self.folder / "..data")

    @property
    def certificate(self):
        return self.folder / "tls.crt"

    @property
    def key(self):
        return self.folder / "tls.key"
