"""A package, so that two test files of one name are two modules, each with the name it is imported by."""
