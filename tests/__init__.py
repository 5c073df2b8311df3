"""Tests are packages, so that two files of one name are two modules and each has the name it is imported by."""
