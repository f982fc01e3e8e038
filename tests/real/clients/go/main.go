// A client of Go: `client http1|http2|grpc URL BYTES [CA [CERTIFICATE KEY]]`, over TLS where CA is named, else in cleartext. Writes what it got
// as JSON, and over TLS what the sessions agreed on. By net/http it asks for every canned answer named on the standard input, sends BYTES bytes,
// and asks once more over a second connection; by grpc-go it makes calls that are echoed, and a stream.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
)

type answer struct {
	Status   int
	Version  string
	Fields   http.Header
	Trailers http.Header
	Body     string
}

type session struct {
	Version   string
	Protocol  string
	IsResumed bool
}

type report struct {
	Answers  []answer
	Sessions []session
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func of(state tls.ConnectionState) session {
	return session{tls.VersionName(state.Version), state.NegotiatedProtocol, state.DidResume}
}

// The bytes of a body, which do not repeat early.
func body(size int) []byte {
	made := make([]byte, size)
	for at := range made {
		made[at] = byte(at * 7 % 251)
	}
	return made
}

// Long bodies by their digest.
func shown(body []byte) string {
	if len(body) < 1000 {
		return string(body)
	}
	digest := sha256.Sum256(body)
	return fmt.Sprintf("%d %s", len(body), hex.EncodeToString(digest[:]))
}

func security() *tls.Config {
	if len(os.Args) < 5 {
		return nil
	}
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(os.Args[4])
	check(err)
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if len(os.Args) > 6 {
		own, err := tls.LoadX509KeyPair(os.Args[5], os.Args[6])
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func overHttp(version, url string, size int) report {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version == "http1")
	protocols.SetHTTP2(version == "http2")
	protocols.SetUnencryptedHTTP2(version == "http2")
	transport := &http.Transport{Protocols: protocols, TLSClientConfig: security(), DisableCompression: true}
	if version == "http1" && transport.TLSClientConfig != nil {
		// else it names none
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	var made report
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(state tls.ConnectionState, err error) {
		check(err)
		made.Sessions = append(made.Sessions, of(state))
	}}
	ask := func(method, path string, content []byte) {
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), method, url+path, bytes.NewReader(content))
		check(err)
		response, err := client.Do(request)
		check(err)
		defer response.Body.Close()
		got, err := io.ReadAll(response.Body)
		check(err)
		made.Answers = append(made.Answers, answer{response.StatusCode, response.Proto, response.Header, response.Trailer, shown(got)})
	}
	names := bufio.NewScanner(os.Stdin)
	for names.Scan() {
		ask("GET", "/canned/"+strings.TrimSpace(names.Text()), nil)
	}
	ask("POST", "/canned/big", body(size))
	// a second connection
	client.CloseIdleConnections()
	ask("GET", "/canned/case", nil)
	return made
}

type raw struct{}

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(bytes []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), bytes...)
	return nil
}
func (raw) Name() string { return "raw" }

var _ encoding.Codec = raw{}

func overGrpc(url string, size int) report {
	shows := insecure.NewCredentials()
	if config := security(); config != nil {
		shows = credentials.NewTLS(config)
	}
	target := url[strings.Index(url, "//")+2:]
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(shows), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	check(err)
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var made report
	var from peer.Peer
	for _, length := range []int{0, 1, size} {
		sent, got := body(length), []byte{}
		check(connection.Invoke(limited, "/echo.Echo/Call", &sent, &got, grpc.Peer(&from)))
		made.Answers = append(made.Answers, answer{Body: shown(got)})
	}
	if info, is := from.AuthInfo.(credentials.TLSInfo); is {
		made.Sessions = append(made.Sessions, of(info.State))
	}
	stream, err := connection.NewStream(limited, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/echo.Echo/Stream")
	check(err)
	for at := range 20 {
		sent, got := body(at*5000), []byte{}
		check(stream.SendMsg(&sent))
		check(stream.RecvMsg(&got))
		made.Answers = append(made.Answers, answer{Body: shown(got)})
	}
	check(stream.CloseSend())
	if err := stream.RecvMsg(&[]byte{}); err != io.EOF {
		check(fmt.Errorf("the stream did not end: %v", err))
	}
	return made
}

func main() {
	size, err := strconv.Atoi(os.Args[3])
	check(err)
	var made report
	if os.Args[1] == "grpc" {
		made = overGrpc(os.Args[2], size)
	} else {
		made = overHttp(os.Args[1], os.Args[2], size)
	}
	check(json.NewEncoder(os.Stdout).Encode(made))
}
