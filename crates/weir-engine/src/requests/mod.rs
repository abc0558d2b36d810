//! The order of single requests at one device, and which scheduler fits.
