import { render } from "preact";
import { App } from "./App.tsx";
import "./styles.css";
import { begin } from "./theme.ts";

begin();
const root = document.getElementById("page");
if (root) render(<App />, root);
