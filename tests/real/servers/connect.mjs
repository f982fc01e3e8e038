// A service of connect-node and a client of it, over HTTP/1.1 or HTTP/2 without TLS.
//
//   node connect.mjs serve PORT 1.1|2
//   node connect.mjs call URL 1.1|2 connect|grpc-web '[{"messages": 3, "code": "internal"}]'
//
// The client prints, for each call, how many messages came and the code that it ended with. LAPWING_TEST_MODULES is the folder of the packages.

import * as http from "node:http";
import * as http2 from "node:http2";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.LAPWING_TEST_MODULES + "/"));
const { create, createFileRegistry } = require("@bufbuild/protobuf");
const wkt = require("@bufbuild/protobuf/wkt");
const { Code, ConnectError, createClient } = require("@connectrpc/connect");
const node = require("@connectrpc/connect-node");

const { FieldDescriptorProto_Label: Label, FieldDescriptorProto_Type: Type } = wkt;
const field = (name, number, type) => ({ name, number, type, label: Label.OPTIONAL, jsonName: name });
const file = {
  name: "model.proto", package: "demo", syntax: "proto3",
  messageType: [
    { name: "Ask", field: [field("messages", 1, Type.INT32), field("code", 2, Type.STRING), field("text", 3, Type.INT32), field("leave", 4, Type.INT32)] },
    { name: "Answer", field: [field("text", 1, Type.STRING)] },
  ],
  service: [{
    name: "Model",
    method: [
      { name: "Generate", inputType: ".demo.Ask", outputType: ".demo.Answer", serverStreaming: true },
      { name: "Predict", inputType: ".demo.Ask", outputType: ".demo.Answer" },
    ],
  }],
};
const service = createFileRegistry(create(wkt.FileDescriptorSetSchema, { file: [file] })).getService("demo.Model");
const camel = (text) => text.replace(/(^|_)(.)/g, (_, __, letter) => letter.toUpperCase());
const snake = (text) => text.replace(/(?!^)([A-Z])/g, "_$1").toLowerCase();

function end(asked) {
  if (asked.code) throw new ConnectError("x".repeat(asked.text || 1), Code[camel(asked.code)]);
}

function serve(port, version) {
  const handler = node.connectNodeAdapter({
    routes: (router) => router.service(service, {
      async *generate(asked) {
        for (let n = 0; n < asked.messages; n++) {
          yield { text: `piece ${n}` };
          await new Promise((resolve) => setTimeout(resolve, 2));
        }
        end(asked);
      },
      predict(asked) {
        end(asked);
        return { text: "whole" };
      },
    }),
  });
  (version === "2" ? http2 : http).createServer(handler).listen(Number(port), "127.0.0.1");
}

async function one(client, { unary, ...asked }) {
  let came = 0;
  const left = new AbortController();
  try {
    if (unary) {
      await client.predict(asked);
      return [1, null];
    }
    for await (const _ of client.generate(asked, { signal: left.signal })) {
      came += 1;
      if (came === asked.leave) {
        left.abort();
        return [came, null];
      }
    }
    return [came, null];
  } catch (e) {
    return [came, snake(Code[ConnectError.from(e).code])];
  }
}

async function call(baseUrl, httpVersion, protocol, calls) {
  const make = protocol === "connect" ? node.createConnectTransport : node.createGrpcWebTransport;
  const client = createClient(service, make({ baseUrl, httpVersion }));
  const seen = [];
  for (const asked of JSON.parse(calls)) seen.push(await one(client, asked));
  console.log(JSON.stringify(seen));
  process.exit(0);
}

const [what, ...rest] = process.argv.slice(2);
await (what === "serve" ? serve : call)(...rest);
