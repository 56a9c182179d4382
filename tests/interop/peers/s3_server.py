"""An S3 server (moto) behind a door that looks at every signature with botocore's own signer: s3_server.py CHECKPOINT KEY TOKEN.

Puts CHECKPOINT's files into bucket "ckpts" under KEY; a thousand empty ones beside them make the listing several pages.
Prints the door's port, and serves until its input ends. Secret keys are "secret of NAME"; GET /latest/... is the metadata service
of a machine, whose role has such a key and TOKEN. A request that is not signed as botocore signs it is answered 403.
"""
import datetime
import http.client
import http.server
import json
import pathlib
import sys
import threading

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from moto.server import ThreadedMotoServer

checkpoint, key, token = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
moto.start()
host, moto_port = moto.get_host_and_port()


def signature(handler, access):
    """What botocore makes of the headers that are said to be signed."""
    scope = handler.headers["Authorization"].split("Credential=")[1].split(",")[0].split("/")
    names = handler.headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest(handler.command, f"http://{handler.headers['Host']}{handler.path}",
                         headers={name: handler.headers[name] for name in names})
    request.context["timestamp"] = handler.headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials(access, f"secret of {access}", handler.headers.get("x-amz-security-token")), "s3", scope[2])
    signer.headers_to_sign = lambda r: r.headers
    request.context["payload_signing_enabled"] = True
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return signer.signature(text, request)


class Door(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def metadata(self):
        """IMDSv2: a session token first, which every question carries."""
        if self.command == "PUT":
            return self.answer(200, b"session\n")
        if self.headers.get("X-aws-ec2-metadata-token") != "session":
            return self.answer(401, b"")
        if self.path.endswith("/security-credentials/"):
            return self.answer(200, b"reader\n")
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        return self.answer(200, json.dumps({"Code": "Success", "AccessKeyId": "ROLE", "SecretAccessKey": "secret of ROLE",
                                            "Token": token, "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode())

    def do_GET(self):
        if self.path.startswith("/latest/"):
            return self.metadata()
        if "Authorization" not in self.headers:
            return self.answer(403, b"")
        access = self.headers["Authorization"].split("Credential=")[1].split("/")[0]
        said = self.headers["Authorization"].split("Signature=")[1]
        if said != signature(self, access) or (access == "ROLE") != (self.headers.get("x-amz-security-token") == token):
            return self.answer(403, b"")
        behind = http.client.HTTPConnection(host, moto_port)
        behind.request(self.command, self.path, headers={name: value for name, value in self.headers.items()
                                                         if name not in ("Host", "x-amz-security-token")})
        found = behind.getresponse()
        headers = [(n, v) for n, v in found.getheaders() if n.lower() in ("etag", "content-range", "last-modified", "content-type")]
        self.answer(found.status, found.read(), headers)

    do_HEAD = do_PUT = do_GET


client = boto3.client("s3", endpoint_url=f"http://{host}:{moto_port}", region_name="us-east-1", aws_access_key_id="k",
                      aws_secret_access_key="s")
client.create_bucket(Bucket="ckpts")
for file in checkpoint.rglob("*"):
    if file.is_file():
        client.put_object(Bucket="ckpts", Key=f"{key}/{file.relative_to(checkpoint)}", Body=file.read_bytes())
for i in range(1000):
    client.put_object(Bucket="ckpts", Key=f"{key}/aaa/{i:04}", Body=b"")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
