"""How checks use Spark: the session, the files that it is given, and intermediate results."""
