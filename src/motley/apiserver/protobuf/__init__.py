"""Kubernetes' protobuf bodies, read into the same documents that JSON gives.

kubectl's `create` commands and every typed Go client send protobuf and cannot be told not to;
nearly all of them accept JSON in return. So the server reads protobuf from everybody and writes it
only for who accepts nothing else.

A body is the magic `k8s\\0`, then an envelope with the object's kind and its bytes. What the bytes
mean is in `messages.txt`, generated from the published field numbers.
"""

from motley.apiserver.protobuf.wire import MEDIA_TYPE, decode
from motley.apiserver.protobuf.writing import encode

__all__ = ["MEDIA_TYPE", "decode", "encode"]
