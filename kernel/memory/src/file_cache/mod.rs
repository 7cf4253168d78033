//! File cache managers - the pages of one file or anonymous object.
