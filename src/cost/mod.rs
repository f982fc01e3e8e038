//! Work against time: what the optimum takes, and how much more the upstream burns (computational debt).
