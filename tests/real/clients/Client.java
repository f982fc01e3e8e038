import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;
import java.util.TreeMap;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Java's HttpClient: {@code java Client.java http1|http2 URL BYTES [CA [CERTIFICATE KEY]]}, over TLS where CA is named. Asks for every canned
 * answer named on the standard input, then sends BYTES bytes, and writes a line for each answer: version, TLS, status, fields, body.
 */
class Client {
    static final char[] NO_PASSWORD = {};

    static Certificate certificate(String file) throws Exception {
        try (FileInputStream in = new FileInputStream(file)) {
            return CertificateFactory.getInstance("X.509").generateCertificate(in);
        }
    }

    static SSLContext security(String[] args) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        store.setCertificateEntry("ca", certificate(args[3]));
        TrustManagerFactory trusts = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusts.init(store);
        KeyManagerFactory shows = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        if (args.length > 5) {
            String pem = Files.readString(Path.of(args[5])).replaceAll("-----[A-Z ]+-----|\\s", "");
            var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
            store.setKeyEntry("own", key, NO_PASSWORD, new Certificate[] {certificate(args[4])});
        }
        shows.init(store, NO_PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(shows.getKeyManagers(), trusts.getTrustManagers(), null);
        return context;
    }

    static String shown(byte[] body) throws Exception {
        if (body.length < 1000) {
            return new String(body, StandardCharsets.ISO_8859_1).replace("\r", "\\r").replace("\n", "\\n");
        }
        return body.length + " " + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    }

    public static void main(String[] args) throws Exception {
        boolean isTls = args.length > 3;
        HttpClient.Builder builder = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(20));
        builder.version(args[0].equals("http2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1);
        HttpClient client = (isTls ? builder.sslContext(security(args)) : builder).build();
        byte[] sent = new byte[Integer.parseInt(args[2])];
        for (int at = 0; at < sent.length; at++) {
            sent[at] = (byte) (at * 7L % 251);
        }
        List<String> names = new Scanner(System.in).tokens().toList();
        for (int at = 0; at <= names.size(); at++) {
            boolean isLast = at == names.size();
            URI uri = URI.create(args[1] + (isLast ? "/canned/big" : "/canned/" + names.get(at)));
            HttpRequest.Builder request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(20));
            if (isLast) {
                request.POST(HttpRequest.BodyPublishers.ofByteArray(sent));
            }
            HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
            String tls = response.sslSession().map(session -> session.getProtocol()).orElse("none");
            var fields = new TreeMap<>(response.headers().map());
            System.out.println(response.version() + "\t" + tls + "\t" + response.statusCode() + "\t" + fields + "\t" + shown(response.body()));
        }
    }
}
