mod by_hand;
mod bench;
mod hostile;
mod script;
