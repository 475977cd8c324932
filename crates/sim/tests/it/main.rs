mod found;
mod short;
