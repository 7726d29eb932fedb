mod bench;
mod hostile;
mod script;
