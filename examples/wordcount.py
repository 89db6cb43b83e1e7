#!/usr/bin/env python3
"""Count the words of some texts, many times over, and how they follow each other.

A long-running program like many: it reads files, grows dictionaries, prints how far it is, appends to a
file as it goes and writes its result there in the end. It knows nothing of twinpage. Run it under

    twinpage run -- python3 examples/wordcount.py

kill it at any instant, `twinpage resume` it, and its output and its result file are what they would have
been. `twinpage prove -- python3 examples/wordcount.py` does that for you and compares.

Usage: wordcount.py [--passes N] [--out FILE] [TEXT...]

Without TEXT it reads the licences every Debian system has in /usr/share/common-licenses, or, where there
are none, the sources of Python's own standard library.
"""

import argparse
import collections
import hashlib
import os
import re
import sys

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def default_texts():
    """Texts found on this machine, in an order that does not depend on it."""
    licences = "/usr/share/common-licenses"
    if os.path.isdir(licences):
        paths = {os.path.realpath(os.path.join(licences, name)) for name in os.listdir(licences)}
        return sorted(path for path in paths if os.path.isfile(path))
    library = os.path.dirname(os.__file__)
    return sorted(os.path.join(library, name) for name in os.listdir(library) if name.endswith(".py"))[:40]


def words_of(path):
    """The words of a text, in order and in lower case."""
    with open(path, encoding="utf-8", errors="replace") as text:
        return WORD.findall(text.read().lower())


class Counts:
    """How often each word came, after which other one, and where each was last seen."""

    def __init__(self):
        self.words = collections.Counter()
        self.followers = collections.defaultdict(collections.Counter)
        self.last_seen = {}
        self.total = 0

    def add(self, words, path, number):
        """Count one text."""
        before = None
        for word in words:
            self.words[word] += 1
            if before is not None:
                self.followers[before][word] += 1
            before = word
        for word in set(words):
            self.last_seen[word] = (number, os.path.basename(path))
        self.total += len(words)

    def check(self):
        """What must be true of any counts; a program whose memory came back wrong would stop here."""
        if sum(self.words.values()) != self.total:
            sys.exit("wordcount: the counts do not sum to the number of words read")
        for word, followers in self.followers.items():
            if sum(followers.values()) > self.words[word]:
                sys.exit(f"wordcount: {word!r} is followed more often than it came")

    def digest(self):
        """A short name of everything counted so far."""
        whole = hashlib.sha256()
        for word in sorted(self.words):
            after = self.followers[word].most_common(1) if word in self.followers else []
            whole.update(f"{word} {self.words[word]} {after} {self.last_seen[word]}\n".encode())
        return whole.hexdigest()[:16]


def table(counts, rows):
    """The most frequent words and what mostly follows each."""
    yield f"{'word':<14} {'count':>9} {'share':>7}  mostly followed by"
    ranked = sorted(counts.words.items(), key=lambda item: (-item[1], item[0]))
    for word, count in ranked[:rows]:
        after = sorted(counts.followers[word].items(), key=lambda item: (-item[1], item[0]))[:3]
        yield f"{word:<14} {count:>9} {count / counts.total:>7.2%}  {', '.join(name for name, _ in after)}"


def arguments():
    """What the user asked for."""
    parser = argparse.ArgumentParser(description="Count the words of some texts, many times over.")
    parser.add_argument("--passes", type=int, default=240, help="how many times to read all texts (240)")
    parser.add_argument("--out", default="wordcount.txt", help="where to write all counts (wordcount.txt)")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to read instead of the licences")
    return parser.parse_args()


def main():
    """Read, count, report."""
    sys.stdout.reconfigure(line_buffering=True)
    options = arguments()
    paths = sorted(options.texts) or default_texts()
    if not paths:
        sys.exit("wordcount: no text to read; name some as arguments")
    counts = Counts()
    with open(options.out, "w", encoding="utf-8") as out:
        for number in range(1, options.passes + 1):
            for path in paths:
                counts.add(words_of(path), path, number)
            counts.check()
            out.write(f"pass {number}: {counts.total} words, {counts.digest()}\n")
            out.flush()
            if number % 5 == 0 or number == options.passes:
                print(f"pass {number:>3} of {options.passes}: {counts.total:>9} words, digest {counts.digest()}")
        print()
        for line in table(counts, 15):
            print(line)
        for word in sorted(counts.words):
            out.write(f"{counts.words[word]} {word}\n")
    print(f"\n{len(counts.words)} counts are in {options.out}")


if __name__ == "__main__":
    main()
