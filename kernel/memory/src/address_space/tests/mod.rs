//! Address spaces against simple models.
