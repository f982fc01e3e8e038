"""Lapwing and its upstreams over TLS."""

import ssl

import grpc

from raw_server import RawServer


def tls_of(authority, **more):
    """The section `tls` as variables."""
    shown = {"CERTIFICATE": authority.folder / "s.pem", "KEY": authority.folder / "s.key"}
    sections = {"LISTEN": shown, "UPSTREAM": {"CA": authority.ca}, **more}
    return {f"LAPWING_TLS__{section}__{key}": str(value) for section, keys in sections.items() for key, value in keys.items()}


def asking(authority):
    """The section of a listener that asks its clients for a certificate."""
    return {"CERTIFICATE": authority.folder / "s.pem", "KEY": authority.folder / "s.key", "CLIENT_CA": authority.ca}


class Polite(ssl.SSLSocket):
    """Ends its session before its connection."""

    def close(self):
        try:
            self.unwrap()
        except (OSError, ValueError):
            pass
        super().close()


class TlsServer(RawServer):
    """The raw server, over TLS; `shown` has the serial numbers of its clients' certificates."""

    def __init__(self, context, is_polite=True):
        super().__init__()
        self.context, self.shown = context, []
        if is_polite:
            context.sslsocket_class = Polite

    def __enter__(self):
        super().__enter__()
        self.url = f"https://localhost:{self.port}"
        return self

    def serve(self, connection):
        try:
            wrapped = self.context.wrap_socket(connection, server_side=True)
            self.shown.append((wrapped.getpeercert() or {}).get("serialNumber"))
            super().serve(wrapped)
        except (ssl.SSLError, OSError):
            connection.close()


class Echo(grpc.GenericRpcHandler):
    """Answers every call with its bytes."""

    def service(self, details):
        if details.method.endswith("Stream"):
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: requests)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def metric(lapwing, name):
    (line,) = [one for one in lapwing.metrics().splitlines() if one.startswith(name + " ")]
    return float(line.split()[-1])
