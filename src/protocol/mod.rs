//! What can be read of a request from its head: the route, the model.
