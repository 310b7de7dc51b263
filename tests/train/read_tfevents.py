#!/usr/bin/env python3
"""Prints what is in a TensorBoard event file, with Python's standard library alone.

A reader of its own, so that the writer is not tested against itself. One line per event:
"version TEXT", "session STEP STATUS" or "scalar STEP TAG VALUE". Exits with 1 on a wrong checksum.
"""
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def check(data, stored):
    crc = crc32c(data)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    if masked != stored:
        sys.exit(f"checksum {stored:08x}, expected {masked:08x}")


def fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
        elif wire == 1:
            yield number, data[at:at + 8]
            at += 8
        elif wire == 5:
            yield number, data[at:at + 4]
            at += 4
        else:
            size = varint()
            yield number, data[at:at + size]
            at += size


def main():
    data = open(sys.argv[1], "rb").read()
    at = 0
    while at < len(data):
        head = data[at:at + 8]
        (size,) = struct.unpack("<Q", head)
        check(head, struct.unpack("<I", data[at + 8:at + 12])[0])
        payload = data[at + 12:at + 12 + size]
        check(payload, struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0])
        at += 16 + size
        step, seconds = 0, None
        for number, value in fields(payload):
            if number == 1:
                seconds = struct.unpack("<d", value)[0]
            elif number == 2:
                step = value
            elif number == 3:
                print("version", value.decode())
            elif number == 7:
                print("session", step, dict(fields(value)).get(1))
            elif number == 5:
                for _, entry in fields(value):
                    parts = dict(fields(entry))
                    print("scalar", step, parts[1].decode(), struct.unpack("<f", parts[2])[0])
        if seconds is None or seconds < 1.5e9:
            sys.exit(f"wall time {seconds}")


main()
