"""One file per paper, whose tables ``tacit reproduce NAME`` repeats; parts that papers share begin with _."""
