"""Ad-hoc queries of a server, in processes apart from the one that makes epochs."""
