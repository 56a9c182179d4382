"""use_s3.py ENDPOINT BUCKET PREFIX DIRECTORY [ACCESS SECRET]: every object below PREFIX has the bytes of DIRECTORY."""
import pathlib
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request

import boto3
import botocore
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, bucket, prefix, directory, *keys = sys.argv[1:]
directory = pathlib.Path(directory)
signing = {} if keys else {"signature_version": botocore.UNSIGNED}
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys[0] if keys else None,
                  aws_secret_access_key=keys[1] if keys else None,
                  config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **signing))


def refused(code, call, **arguments):
    try:
        call(Bucket=bucket, **arguments)
    except ClientError as why:
        assert why.response["Error"]["Code"] == code, (code, why.response)
    else:
        raise AssertionError(f"{call} {arguments}: expected {code}")


def listed(size, **arguments):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": size}, **arguments)
    pages = list(pages)
    return ([o for p in pages for o in p.get("Contents", [])], [d["Prefix"] for p in pages for d in p.get("CommonPrefixes", [])])


assert bucket in [b["Name"] for b in s3.list_buckets()["Buckets"]]
s3.head_bucket(Bucket=bucket)
assert not s3.get_bucket_location(Bucket=bucket)["LocationConstraint"]

files = {prefix + str(p.relative_to(directory)): p for p in directory.rglob("*") if p.is_file()}
objects = listed(1000, Prefix=prefix)[0]
assert [o["Key"] for o in objects] == sorted(files), (objects, files)
assert listed(1, Prefix=prefix)[0] == objects
assert set(listed(1000, Prefix=prefix, Delimiter="/")[1]) == {k[:k.index("/", len(prefix)) + 1] for k in files if "/" in k[len(prefix):]}
assert prefix.split("/")[0].split("__")[0] + "/" in listed(1000, Delimiter="/")[1]

for o in objects:
    data = files[o["Key"]].read_bytes()
    head = s3.head_object(Bucket=bucket, Key=o["Key"])
    assert (head["ContentLength"], head["ETag"], head["LastModified"]) == (len(data), o["ETag"], o["LastModified"]) and o["Size"] == len(data)
    whole = s3.get_object(Bucket=bucket, Key=o["Key"], IfMatch=o["ETag"])
    assert whole["Body"].read() == data, o["Key"]
    part = s3.get_object(Bucket=bucket, Key=o["Key"], Range=f"bytes={len(data) // 3}-")
    assert part["Body"].read() == data[len(data) // 3:], o["Key"]
    with tempfile.NamedTemporaryFile() as to:
        s3.download_file(bucket, o["Key"], to.name, Config=TransferConfig(multipart_threshold=100000, multipart_chunksize=100000))
        assert pathlib.Path(to.name).read_bytes() == data, o["Key"]

# Addresses that anybody may use for a while.
if keys:
    v4 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=keys[0], aws_secret_access_key=keys[1],
                      config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"))

    def fetch(url, **headers):
        try:
            return urllib.request.urlopen(urllib.request.Request(url, headers=headers)).read()
        except urllib.error.HTTPError as why:
            return why.code, re.search("<Code>(.*)</Code>", why.read().decode())[1]

    def presigned(seconds=60, **arguments):
        return v4.generate_presigned_url("get_object", Params={"Bucket": bucket, **arguments}, ExpiresIn=seconds)

    for o in objects:
        assert fetch(presigned(Key=o["Key"])) == files[o["Key"]].read_bytes(), o["Key"]
    url, key, port = presigned(Key=objects[0]["Key"]), objects[0]["Key"], endpoint.rsplit(":", 1)[1]
    assert fetch(url, Range="bytes=1-3") == files[key].read_bytes()[1:4]
    assert fetch(url + "&partNumber=1") == (403, "SignatureDoesNotMatch")
    assert fetch(url.replace(key, objects[-1]["Key"])) == (403, "SignatureDoesNotMatch")
    assert fetch(url.replace("127.0.0.1", "localhost")) == (403, "SignatureDoesNotMatch")
    assert fetch(url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")) == (403, "SignatureDoesNotMatch")
    assert fetch(presigned(Key=key, seconds=604801)) == (400, "AuthorizationQueryParametersError")
    assert fetch(presigned(Key=key, ResponseContentType="text/html")) == (501, "NotImplemented")
    url = presigned(Key=key, seconds=1)
    time.sleep(2.1)
    assert fetch(url) == (403, "AccessDenied")

key = objects[0]["Key"]
refused("NoSuchKey", s3.get_object, Key=prefix + "nope")
refused("404", s3.head_object, Key=prefix + "nope")
refused("304", s3.get_object, Key=key, IfNoneMatch=objects[0]["ETag"])
refused("PreconditionFailed", s3.get_object, Key=key, IfMatch='"x"')
refused("InvalidRange", s3.get_object, Key=key, Range="bytes=99999999-")
refused("AccessDenied", s3.put_object, Key=key, Body=b"x" * 1000)
refused("AccessDenied", s3.delete_object, Key=key)
refused("AccessDenied", s3.create_multipart_upload, Key=key)
