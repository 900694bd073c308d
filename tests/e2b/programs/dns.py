"""Answers every question for an address below one domain with 127.0.0.1: the names of sandboxes, without an internet."""
import socket
import sys

suffix = sys.argv[1].encode().split(b".")
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, peer = server.recvfrom(2048)
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].lower())
        at += 1 + query[at]
    question, kind = query[12:at + 5], query[at + 1:at + 3]
    known = labels[-len(suffix):] == suffix
    # Type A: one address. Another type of a known name: no answer, and the name exists.
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if known and kind == b"\0\1" else b""
    flags = b"\x85\x80" if known else b"\x85\x83"
    counts = b"\0\1" + (b"\0\1" if answer else b"\0\0") + b"\0\0\0\0"
    server.sendto(query[:2] + flags + counts + question + answer, peer)
