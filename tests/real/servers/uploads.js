// Takes uploads: `uploads.js h1|h2 PORT`, over HTTP/1.1 or HTTP/2 without TLS. Answers once the body has ended: 200 if it had as many bytes as
// the path says, 500 otherwise, and how many there were.
const [protocol, port] = process.argv.slice(2);

function take(request, response) {
    let bytes = 0;
    request.on("data", (piece) => {
        bytes += piece.length;
    });
    request.on("end", () => {
        response.statusCode = bytes === Number(request.url.slice(1).split("?")[0]) ? 200 : 500;
        response.end(`${bytes}\n`);
    });
}

const server = protocol === "h2" ? require("node:http2").createServer(take) : require("node:http").createServer(take);
server.listen(Number(port), "127.0.0.1");
