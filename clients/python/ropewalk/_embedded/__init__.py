"""The database in this process: the classes of the client, over the native module `ropewalk._core`."""
