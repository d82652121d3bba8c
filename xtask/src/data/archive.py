"""Two commands for `cargo xtask data`. They are in Python, which pip requires anyway.

sums FILE...                      the SHA-256 of each file, one per line; `-` for a missing file
unpack ARCHIVE [MEMBER FILE]...   writes each member of a .tar.gz or a wheel to its file;
                                  decompresses a member that ends in .gz
"""
import gzip, hashlib, sys, tarfile, zipfile


def sums(files):
    for file in files:
        try:
            with open(file, "rb") as opened:
                print(hashlib.sha256(opened.read()).hexdigest())
        except FileNotFoundError:
            print("-")


def unpack(archive, pairs):
    if archive.endswith(".tar.gz"):
        tar = tarfile.open(archive, "r:gz")
        read = lambda member: tar.extractfile(member).read()
    else:
        read = zipfile.ZipFile(archive).read
    for member, file in zip(pairs[::2], pairs[1::2]):
        content = read(member)
        if member.endswith(".gz"):
            content = gzip.decompress(content)
        with open(file, "wb") as opened:
            opened.write(content)


if sys.argv[1] == "sums":
    sums(sys.argv[2:])
else:
    unpack(sys.argv[2], sys.argv[3:])
